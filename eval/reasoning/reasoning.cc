#include "eval/reasoning/reasoning.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "engine/runtime/limits.h"
#include "eval/answers/rules.h"
#include "eval/report/published_flops.h"
#include "eval/report/table.h"
#include "eval/run/option_values.h"

namespace tandem::eval {
namespace {

/// The seed of one answer's draws.
std::uint64_t seed_of_answer(std::uint64_t seed, std::string_view task, std::uint32_t problem, std::uint32_t repeat) {
  std::uint64_t state = mix64(seed);
  for (const std::uint64_t word : {fnv1a64(task), std::uint64_t{problem}, std::uint64_t{repeat}})
    state = mix64(state ^ word);
  return state;
}

/// Mean over steps: with a budget the formula at the mean context is more than that.
std::optional<double> mean_attention_flops(const ModelConfig& config, const MethodEntry& method,
                                           const std::vector<std::uint64_t>& steps) {
  double sum = 0, all = 0;
  for (std::size_t context = 0; context < steps.size(); ++context) {
    if (steps[context] == 0) continue;
    const std::optional<double> flops = attention_flops(config, method, static_cast<std::uint32_t>(context));
    if (!flops) return std::nullopt;
    sum += *flops * static_cast<double>(steps[context]);
    all += static_cast<double>(steps[context]);
  }
  return all > 0 ? std::optional(sum / all) : std::nullopt;
}

/// Three figures, with its unit: a small model's token takes megaflops, a large one's gigaflops.
std::string flops_text(double flops) {
  return flops >= 1e9 ? fmt::format("{:.2f} G", flops * 1e-9) : fmt::format("{:.2f} M", flops * 1e-6);
}

double mean_tokens(const ReasoningFigures& figures) {
  return static_cast<double>(figures.tokens) / static_cast<double>(figures.answers);
}

struct RuleShare {
  std::string name;
  double decided = 0;           // share of the answers that it found
  std::optional<double> alone;  // mean score by it alone; published rules have one
};

/// Published rules, and other ones that found an answer, in the order in which they are tried.
std::vector<RuleShare> rule_shares(const ReasoningFigures& figures, AnswerKind kind) {
  std::vector<RuleShare> shares;
  for (const AnswerRule& rule : answer_rules(kind)) {
    RuleShare share{std::string(rule.name), 0, std::nullopt};
    if (const auto found = figures.decided.find(share.name); found != figures.decided.end())
      share.decided = static_cast<double>(found->second) / static_cast<double>(figures.answers);
    if (const auto alone = figures.by_rule.find(share.name); alone != figures.by_rule.end())
      share.alone = alone->second;
    if (share.alone || share.decided > 0) shares.push_back(std::move(share));
  }
  return shares;
}

}  // namespace

Reasoning::Reasoning(const ReasoningOptions& options, const Model& model)
    : FileDataset(static_cast<const FileChoice&>(options), model), options_(options) {
  check_sampling(options.sampling);
  if (options.repeats < 1) throw_input_error("--repeats is 0: ask for at least one answer to each problem.");
  if (options.max_new_tokens < 1) throw_input_error("--max-new is 0: ask for at least one token.");
  if (options.sampling.temperature == 0 && options.repeats > 1) {
    throw_input_error(
        "--repeats is {}, but greedy answers to a problem are all the same: add --temperature above 0, 0.6 for "
        "example.",
        options.repeats);
  }
  files_ = read_reasoning(options.data, choice_.tasks);
  for (const std::string& task : choice_.tasks) {
    for (std::uint32_t i = 0; i < FileDataset::samples_of(task); ++i) {
      const auto tokens = static_cast<std::uint32_t>(prompt_of(file(task).problems[i]).size());
      longest_prompt_ = std::max(longest_prompt_, tokens);
      if (tokens + std::uint64_t{options.max_new_tokens} <= model.config.max_positions) continue;
      throw_input_error(
          "--max-new {} leaves no room for problem {} of {}, which has {} tokens: model '{}' has {} positions.{}",
          options.max_new_tokens, i + 1, task, tokens, model.name, model.config.max_positions,
          tokens < model.config.max_positions
              ? fmt::format(" At most {} can be generated there.", model.config.max_positions - tokens)
              : "");
    }
  }
}

std::vector<std::int32_t> Reasoning::prompt_of(const ReasoningProblem& problem) const {
  check_text_fits(model_, problem.prompt, "A problem of --data");
  return user_prompt(*model_.tokenizer, choice_.template_of, problem.prompt, options_.thinking);
}

DatasetSample Reasoning::sample(const std::string& task, std::uint32_t length, std::uint32_t index) const {
  const std::uint32_t problem = index / options_.repeats, repeat = index % options_.repeats;
  const ReasoningProblem& asked = file(task).problems.at(problem);
  DatasetSample sample = {.task = task,
                          .length = length,
                          .index = index,
                          .prompt = prompt_of(asked),
                          .answers = {asked.answer},
                          .max_new_tokens = options_.max_new_tokens,
                          .sampling = options_.sampling,
                          .cut_is_wrong = true};
  sample.sampling.seed = seed_of_answer(options_.sampling.seed, task, problem, repeat);
  return sample;
}

Score Reasoning::score(const DatasetSample& sample, const std::string& prediction) const {
  Graded graded = grade_answer(prediction, sample.answers.front(), file(sample.task).kind);
  return {graded.score, std::move(graded.rule), std::move(graded.by_rule)};
}

std::string Reasoning::protocol_part() const {
  const Sampling& how = options_.sampling;
  const std::string drawn = how.temperature == 0 ? "greedy"
                                                 : fmt::format("temperature-{}-top-k-{}-top-p-{}-min-p-{}",
                                                               how.temperature, how.top_k, how.top_p, how.min_p);
  return fmt::format("{}+draw:{}+answers:{}+max-new:{}+score:{}", options_.thinking ? "" : "-no-thinking", drawn,
                     options_.repeats, options_.max_new_tokens, kGrader);
}

std::string Reasoning::arguments() const {
  const std::string some = choice_.samples == 0 ? "" : fmt::format(" --samples {}", choice_.samples);
  std::string drawn;
  if (const Sampling& how = options_.sampling; how.temperature > 0) {
    drawn = fmt::format(" --repeats {} --temperature {} --top-k {} --top-p {} --min-p {} --seed {}", options_.repeats,
                        how.temperature, how.top_k, how.top_p, how.min_p, how.seed);
  }
  return fmt::format(" --tasks {} --max-new {}{}{}", shell_word(fmt::format("{}", fmt::join(choice_.tasks, ","))),
                     length_text(options_.max_new_tokens), some, drawn);
}

struct Reasoning::Point {
  std::string task;
  std::size_t method = 0;  // of Summary::methods
  const AccuracyCell* pass = nullptr;
  ReasoningFigures figures;
  std::optional<double> attention;  // FLOPs
};

std::vector<Reasoning::Point> Reasoning::points_of(const RunFolder& folder, const Summary& summary) const {
  auto answers = samples_by_task(folder);
  std::vector<Point> points;
  for (const std::string& task : choice_.tasks) {
    for (std::size_t m = 0; m < summary.methods.size(); ++m) {
      const MethodSummary& method = summary.methods[m];
      const auto cell = std::ranges::find(method.cells, task, &AccuracyCell::task);
      if (cell == method.cells.end()) continue;
      const ReasoningFigures figures = reasoning_figures(answers[task][method.label], options_.max_new_tokens);
      const MethodEntry& entry = entry_of(summary.manifest, method);
      points.push_back({task, m, &*cell, figures, mean_attention_flops(model_.config, entry, figures.steps)});
    }
  }
  return points;
}

ReasoningFigures reasoning_figures(const std::vector<SampleResult>& answers, std::uint32_t max_new_tokens) {
  ReasoningFigures figures;
  for (const SampleResult& answer : answers) {
    ++figures.answers;
    figures.tokens += answer.tokens.size();
    const bool cut = answer.tokens.size() >= max_new_tokens;
    if (cut) {
      ++figures.cut;
    } else if (!answer.rule) {
      ++figures.without_answer;
    }
    if (answer.rule) ++figures.decided[*answer.rule];
    for (const auto& [rule, score] : answer.by_rule) figures.by_rule[rule] += score;
    // The step that makes token j, from 0 on, attends to the prompt and the j tokens before; the end token has a step.
    const std::size_t own = answer.tokens.size() + (cut ? 0 : 1), end = answer.prompt_tokens + own;
    if (figures.steps.size() < end) figures.steps.resize(end);
    for (std::size_t context = answer.prompt_tokens; context < end; ++context) ++figures.steps[context];
  }
  double contexts = 0, all = 0;
  for (std::size_t context = 0; context < figures.steps.size(); ++context) {
    contexts += static_cast<double>(context) * static_cast<double>(figures.steps[context]);
    all += static_cast<double>(figures.steps[context]);
  }
  figures.context = ratio(contexts, all);
  for (auto& [rule, score] : figures.by_rule) score /= static_cast<double>(figures.answers);
  return figures;
}

/// A row per task and method. FLOPs are by the published formulas (eval/report/published_flops.h), the mean over
/// steps.
std::string Reasoning::own_section(const RunFolder& folder, const Summary& summary, bool markdown) const {
  const ModelConfig& config = model_.config;
  const std::vector<std::string> labels = labels_of(summary, markdown);
  Table pass, cost, rules;
  pass.leading = cost.leading = 2;
  rules.leading = 3;
  rules.head = {"task", "method", "rule", "decided, %", "Pass@1 by it alone, %"};
  pass.head = {"task", "method", "problems", "Pass@1, % [95\u00a0%]",
               "difference to " + labels.front() + ", points [95\u00a0%]"};
  cost.head = {"task",         "method",           "tokens of an answer", "cut off, %", "no answer found, %",
               "mean context", "FLOPs of a token", "of attention"};
  for (const Point& p : points_of(folder, summary)) {
    const ReasoningFigures& f = p.figures;
    pass.rows.push_back({p.task, labels[p.method], std::to_string(p.pass->units), accuracy_text(p.pass->accuracy),
                         difference_text(*p.pass)});
    const auto share = [&](std::uint64_t part) {
      return fmt::format("{:.1f}", 100 * double(part) / double(f.answers));
    };
    cost.rows.push_back({p.task, labels[p.method], fmt::format("{:.1f}", mean_tokens(f)), share(f.cut),
                         share(f.without_answer),
                         figure_text(f.context, [](double tokens) { return fmt::format("{:.0f}", tokens); }),
                         p.attention ? flops_text(parameter_flops(config) + *p.attention) : "-",
                         p.attention ? flops_text(*p.attention) : "-"});
    for (const RuleShare& rule : rule_shares(f, file(p.task).kind)) {
      rules.rows.push_back(
          {p.task, labels[p.method], rule.name, percent_text(rule.decided), figure_text(rule.alone, percent_text)});
    }
  }
  const ReasoningOptions& o = options_;
  std::string text = section("Pass@1", markdown) + text_of(pass, markdown);
  text += note(fmt::format("{} An interval takes a problem, with the mean score of its answers, as one sample; "
                           "differences are between answers of the same problem{}.",
                           o.repeats == 1 ? "One answer to each problem."
                                          : fmt::format("The mean over {} answers to each problem.", o.repeats),
                           o.sampling.temperature == 0 ? "" : " and the same random numbers"),
               markdown);
  text += section("Rules that found the answers", markdown) + text_of(rules, markdown);
  text += note(
      "Decided: answers that this rule found; of several the first one counts (docs/answer_rules.md). By it alone: the "
      "score of all answers by one published rule, to put beside published tables; answers that --max-new cut off are "
      "scored there as they stand. -: the rule is no published one.",
      markdown);
  text += section("Tokens and FLOPs", markdown) + text_of(cost, markdown);
  text += note(
      fmt::format("Cut off: answers of all {} tokens that --max-new allows; they count as wrong, whatever they say, "
                  "and so do answers in which no final answer was found. FLOPs of decoding one token by AsyncSpade's "
                  "appendix B, the mean over decode steps: projections and MLP, and of attention 4qh for each token "
                  "attended, 2qh for each token or page scored on the step's way. -: no formula was published for the "
                  "method with these options. What the operations of this run computed is in timings.jsonl.",
                  o.max_new_tokens),
      markdown);
  return text;
}

/// The same figures, a point per task and method, in the form of a comparison's flops.json, so that
/// scripts/plot_reproduction.py draws both.
std::string Reasoning::own_json(const RunFolder& folder, const Summary& summary) const {
  const Manifest& m = summary.manifest;
  nlohmann::ordered_json json = {{"schema", "tandem-accuracy-flops-1"}, {"command", m.command}};
  write_programs(json, m.programs);
  json["model"] = m.model;
  json["protocol_id"] = m.protocol_id;
  json["clock"] = m.clock;
  json["points"] = nlohmann::ordered_json::array();
  for (const Point& p : points_of(folder, summary)) {
    const ReasoningFigures& f = p.figures;
    const MethodSummary& method = summary.methods[p.method];
    nlohmann::ordered_json point = {{"method", method.label}, {"task", p.task}, {"problems", p.pass->units}};
    point.update(estimate_json(p.pass->accuracy, "accuracy"));
    if (p.pass->has_difference) point["difference"] = estimate_json(p.pass->difference.difference, "value");
    const auto all = static_cast<double>(f.answers);
    point["tokens"] = mean_tokens(f);
    point["cut"] = static_cast<double>(f.cut) / all;
    point["without_answer"] = static_cast<double>(f.without_answer) / all;
    point["context"] = json_or_null(f.context);
    if (p.attention) {
      point["flops"] = parameter_flops(model_.config) + *p.attention;
      point["attention_flops"] = *p.attention;
    }
    point["rules"] = nlohmann::ordered_json::object();
    for (const RuleShare& rule : rule_shares(f, file(p.task).kind)) {
      point["rules"][rule.name] = {{"decided", rule.decided}};
      if (rule.alone) point["rules"][rule.name]["accuracy"] = *rule.alone;
    }
    point["tpot_ms_of_all_tasks"] = json_or_null(method.latency ? method.latency->tpot_ms : std::nullopt);
    json["points"].push_back(std::move(point));
  }
  return json_text(json, 1) + "\n";
}

}  // namespace tandem::eval
