// tandem profile: statistics of a model that methods build on. `heads`: where attention goes, per layer and head;
// `layer-ahead`: how well the next layer's queries can be predicted; `scout-recall`: how often ScoutAttention recalls;
// `query-shift`: how well the next token's choice is known before its query is.
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "engine/common/error.h"
#include "engine/common/json.h"
#include "engine/common/version.h"
#include "eval/heads/report.h"
#include "eval/report/line_file.h"
#include "eval/ruler/ruler.h"
#include "eval/run/option_values.h"
#include "methods/registry.h"

namespace tandem::cli {
namespace {

constexpr const char* kProfileFooter = R"(
Examples:
  tandem profile heads                                   which heads of the embedded model stream, which retrieve
  tandem profile layer-ahead                             whether its queries can be predicted a layer ahead
  tandem profile scout-recall --out recall.json          recall intervals for scoutattention:recall=recall.json
  tandem profile query-shift                             what asyncspade's predicted queries would choose)";

constexpr const char* kHeadsFooter = R"(
Examples:
  tandem profile heads                                   the embedded model on RULER's needle tasks
  tandem profile heads --length 8K --samples 5 --out heads.json
  tandem profile heads --model ~/llama --text-file book.txt --each-head
  tandem profile heads --model ~/llama --length 32K --device cuda

Hybrid methods live on four properties of attention: sinks and the recent window carry much of it, some heads need
nothing else (streaming heads), the others need few tokens, and the next query is like this one or like what the layer
before predicts. This measures them with full attention at the decode queries that produce the answer (of a text: at the
last 32 tokens of each window), the answer given. The same command gives the same numbers in every run; on a GPU nobody has
tried that.

The terminal shows means over the heads of a layer, --each-head every head; the JSON file has all of it, per query head
and per KV head, how far each layer's input is from the one before, and the budgets for 90, 95 and 99 % of the mass.
models/README.md sets the embedded model's figures beside those of the papers.)";

constexpr const char* kAheadFooter = R"(
Examples:
  tandem profile layer-ahead                             the embedded model on RULER's needle tasks
  tandem profile layer-ahead --model ~/llama --length 8K --samples 5

ScoutAttention begins a layer's attention on the CPU with a query predicted from the layer before. This prints how close
it is to the true one, under both readings of the paper, beside the paper's Table 1, and how far the layer's input is
from what it was predicted from. --out writes the same file as `tandem profile heads`.)";

constexpr const char* kRecallFooter = R"(
Examples:
  tandem profile scout-recall --out recall.json
  tandem compare --methods full,scoutattention:budget=512,recall=recall.json

Decodes with full attention, and the same tokens with ScoutAttention: without recalls, with one in every step, and with
the intervals that it finds, the most steps per layer in which the CPU attends less than --threshold of the budget.)";

constexpr const char* kShiftFooter = R"(
Examples:
  tandem profile query-shift                             the embedded model on six RULER tasks at three lengths
  tandem profile query-shift --model ~/qwen --text-file book.txt --length 8K --out shift.json

AsyncSpade chooses the tokens of a step one step ahead, with a query predicted from the latest ones. This prints how many
of the true query's best tokens earlier queries choose too, by their distance (figure 4), and queries predicted by each
reading of the paper (figure 5). The default of asyncspade is the best of them on the embedded model;
methods/asyncspade/README.md has the table.)";

constexpr std::uint64_t kPromptSeed = 42;

struct ProfileOptions {
  SessionOptions session;
  std::string usual_tasks = "niah", tasks = usual_tasks, length = "2K", text_file, out;
  std::uint32_t samples = 2, window = 256, steps = 32;
  std::string budget = "512";
  std::uint32_t block = 32;
  double threshold = 0.12;
  std::string scope = "layer", pred_norm = "next";
  eval::ShiftOptions shift;
  bool each_head = false, force = false, quiet = false;
};

void check_samples(const ProfileOptions& options) {
  eval::check_range("--samples", options.samples, 1, 10000);
}

/// What can be known before the model is loaded, so that a typo costs nothing.
std::uint32_t check(const ProfileOptions& options, const eval::HeadOptions& heads, bool windows) {
  const std::uint32_t length = eval::parse_one_length(options.length, "--length");
  check_samples(options);
  if (windows && options.window < 1) throw_input_error("--window is 0: give at least the query's own token.");
  if (length < 2) throw_input_error("--length is {}: give at least 2 tokens, one for the query.", length);
  if (windows && length <= std::uint64_t{heads.streaming_sinks} + options.window) {
    throw_input_error(
        "--length is {}, but sinks ({}) and --window ({}) cover that already, so every head would be a streaming one: "
        "give more than {} tokens or a smaller --window.",
        length, heads.streaming_sinks, options.window, std::uint64_t{heads.streaming_sinks} + options.window);
  }
  check_ending(options.out, {".json"});
  check_new_file(options.out, options.force);
  return length;
}

/// The model with the prompts it is profiled on.
struct Subject {
  Session session;
  std::vector<eval::HeadPrompt> prompts;
  eval::HeadSource source;  // its command up to the profile's own options
};

Subject open_subject(const ProfileOptions& options, const char* what, const std::vector<std::uint32_t>& lengths) {
  if (!options.text_file.empty() && options.tasks != options.usual_tasks)
    throw_input_error(
        "--tasks changes nothing with --text-file, whose windows take the tasks' place: give one of them.");
  const auto tasks = eval::expand_ruler_tasks(options.tasks);
  const std::string text =
      options.text_file.empty() ? "" : read_text(options.text_file, fmt::format("--text-file '{}'", options.text_file));
  Subject subject{open_session(options.session, options.quiet), {}, {}};
  const Model& model = subject.session.model;
  for (const std::uint32_t length : lengths) {
    if (length <= model.config.max_positions) continue;
    throw_input_error("--length: {} is more than the {} positions of model '{}' (max_position_embeddings).", length,
                      model.config.max_positions, model.name);
  }
  eval::HeadSource& source = subject.source;
  source.tandem_version = std::string(version());
  source.git_commit = std::string(git_commit());
  source.model = model.name;
  source.weights_hash = model.weights_hash;
  source.tokenizer_hash = model.tokenizer->hash();
  source.command = fmt::format("tandem profile {} --model {} --length {} --samples {}", what,
                               eval::shell_word(model.name), options.length, options.samples);
  if (options.session.device != SessionOptions().device) source.command += " --device " + options.session.device;
  source.gpu = subject.session.device->gpu_name();
  if (options.text_file.empty()) {
    for (const std::uint32_t length : lengths) {
      auto more = eval::ruler_head_prompts(model, tasks, length, options.samples, kPromptSeed);
      std::move(more.begin(), more.end(), std::back_inserter(subject.prompts));
    }
    source.command += " --tasks " + fmt::format("{}", fmt::join(tasks, ","));
    source.prompts = fmt::format("RULER, embedded: {}", fmt::join(tasks, ", "));
  } else {
    for (const std::uint32_t length : lengths) {
      auto more = eval::text_head_prompts(model, text, options.text_file, length, options.samples);
      std::move(more.begin(), more.end(), std::back_inserter(subject.prompts));
    }
    source.command += " --text-file " + eval::shell_word(options.text_file);
    source.prompts = options.text_file;
  }
  return subject;
}

std::uint32_t longest(const std::vector<eval::HeadPrompt>& prompts) {
  std::size_t most = 0;
  for (const eval::HeadPrompt& prompt : prompts) most = std::max(most, prompt.tokens.size());
  return static_cast<std::uint32_t>(most);
}

void write_json(const ProfileOptions& options, const nlohmann::ordered_json& json, const char* what) {
  if (options.out.empty()) return;
  eval::write_file(options.out, json_text(json, 1) + "\n");
  print("\n{}: {}, as JSON\n", options.out, what);
}

/// `ahead`: the report is about predicted queries.
void profile_heads(const ProfileOptions& options, bool ahead) {
  eval::HeadOptions heads;
  heads.window = options.window;
  const std::uint32_t length = check(options, heads, !ahead);
  Subject subject = open_subject(options, ahead ? "layer-ahead" : "heads", {length});
  if (!ahead) subject.source.command += fmt::format(" --window {}", options.window);
  Session& session = subject.session;
  keep_one_prompt(session, longest(subject.prompts), DType::f32);  // the model's statistics, not a KV store's
  Engine engine(session.model, *session.device, *session.pool, session.engine);
  const eval::HeadProfile profile = with_progress("profiling heads", options.quiet, [&](const auto& progress) {
    return eval::profile_heads(session.model, engine, *session.pool, subject.prompts, heads, progress);
  });
  subject.session.weights->check_bytes();
  print("{}", ahead ? eval::layer_ahead_text(profile, subject.source)
                    : eval::head_report_text(profile, subject.source, options.each_head));
  write_json(options, eval::head_profile_json(profile, subject.source), "all heads");
}

void profile_recall(const ProfileOptions& options) {
  const std::uint32_t length = eval::parse_one_length(options.length, "--length");
  check_samples(options);
  eval::check_range("--steps", options.steps, 2, 100000);
  if (!(options.threshold > 0 && options.threshold < 1))
    throw_input_error("--threshold is {}: give a share of the budget between 0 and 1.", options.threshold);
  check_ending(options.out, {".json"});
  check_new_file(options.out, options.force);
  eval::RecallOptions recall;
  recall.budget = eval::parse_one_length(options.budget, "--budget");
  recall.steps = options.steps;
  recall.threshold = options.threshold;
  recall.method = fmt::format("scoutattention:budget={},block={},pred_norm={},scope={}", recall.budget, options.block,
                              options.pred_norm, options.scope);
  make_method(recall.method);  // its errors, before the model is loaded
  Subject subject = open_subject(options, "scout-recall", {length});
  subject.source.command +=
      fmt::format(" --budget {} --block {} --pred-norm {} --scope {} --steps {} --threshold {}", options.budget,
                  options.block, options.pred_norm, options.scope, options.steps, options.threshold);
  Session& session = subject.session;
  ModelConfig& c = session.model.config;
  if (length + options.steps > c.max_positions) {
    throw_input_error("--length {} and --steps {} are more than the {} positions of model '{}'.", length, options.steps,
                      c.max_positions, session.model.name);
  }
  c.stop_tokens.clear();  // every prompt has all steps
  keep_one_prompt(session, longest(subject.prompts) + options.steps, session.engine.precision);
  KvBudget& kv = session.engine.kv;  // for what the method makes of the prompt, too
  kv.host_bytes = kv.device_bytes;
  kv.device_bytes *= 2;
  Engine engine(session.model, *session.device, *session.pool, session.engine);
  const eval::RecallProfile profile = with_progress("profiling recalls", options.quiet, [&](const auto& progress) {
    return eval::profile_recall(engine, subject.prompts, recall, progress);
  });
  subject.session.weights->check_bytes();
  print("{}", eval::recall_text(profile, subject.source));
  write_json(options, eval::recall_json(profile, subject.source), "intervals for scoutattention:recall=FILE");
}

void profile_shift(const ProfileOptions& options) {
  const eval::ShiftOptions& shift = options.shift;
  if (shift.window < 1 || shift.window > kMaxWindow)
    throw_input_error("--query-window is {}: give 1 to {} queries.", shift.window, kMaxWindow);
  if (!(shift.share > 0 && shift.share < 1))
    throw_input_error("--share is {}: give a share of the tokens between 0 and 1.", shift.share);
  if (!(shift.epsilon > 0 && std::isfinite(shift.epsilon)))
    throw_input_error("--epsilon is {}: give a number above 0.", shift.epsilon);
  const std::vector<std::uint32_t> lengths = eval::parse_lengths(options.length, "--length");
  check_samples(options);
  check_ending(options.out, {".json"});
  check_new_file(options.out, options.force);
  Subject subject = open_subject(options, "query-shift", lengths);
  subject.source.command +=
      fmt::format(" --query-window {} --share {} --epsilon {}", shift.window, shift.share, shift.epsilon);
  for (const eval::HeadPrompt& prompt : subject.prompts) {
    if (prompt.first_query > shift.window) continue;
    throw_input_error(
        "--length {} is too short: a prompt has {} tokens before its answer, and --query-window {} needs {}.",
        options.length, prompt.first_query, shift.window, shift.window + 1);
  }
  Session& session = subject.session;
  keep_one_prompt(session, longest(subject.prompts), DType::f32);
  Engine engine(session.model, *session.device, *session.pool, session.engine);
  const eval::ShiftProfile profile = with_progress("profiling queries", options.quiet, [&](const auto& progress) {
    return eval::profile_query_shift(session.model, engine, *session.pool, subject.prompts, shift, progress);
  });
  subject.session.weights->check_bytes();
  print("{}", eval::query_shift_text(profile, subject.source));
  write_json(options, eval::query_shift_json(profile, subject.source), "all layers and readings");
}

void add_common(Command command, ProfileOptions& options) {
  command.option("--model", options.session.model, kModelHelp).show_default();
  command.option("--length", options.length, "Context length in tokens: 4K, 32768; query-shift takes several")
      .show_default();
  command.option("--samples", options.samples, "Samples per task, or windows of the text").show_default();
  command.option("--tasks", options.tasks, "RULER tasks or groups: niah, single, multikey").show_default();
  command.option("--text-file", options.text_file, "Profile on windows of this text instead of RULER tasks");
  command.option("--out", options.out, "Write all numbers to this JSON file");
  command.flag("--force", options.force, "Replace the file");
  command
      .option(
          "--threads", options.session.threads,
          "CPU threads for kernels; 0: all that this process may use (with --device cuda all but one), pinned unless "
          "TANDEM_PIN=0")
      .show_default();
  add_compute_option(command, options.session);
  command.flag("--quiet", options.quiet, "No progress line");
}

}  // namespace

void profile_model_figure(const ModelFigure& wanted) {
  ProfileOptions options;
  options.out = wanted.out;
  options.force = wanted.force;
  options.quiet = wanted.quiet;
  options.session.threads = wanted.threads;
  print("The embedded model, which is none of the paper's: what is comparable is the method, not the figure.\n\n");
  if (wanted.figure == "table1") {
    profile_heads(options, true);
  } else {
    profile_recall(options);
  }
}

void add_profile(Command app) {
  Command command =
      app.subcommand("profile", "Statistics of a model that methods build on: heads, layer-ahead, recalls, shift");
  command.require_subcommand();
  command.footer(kProfileFooter);
  Command heads = command.subcommand("heads", "Attention heads: sinks, window, streaming, budgets, predictability");
  auto of_heads = std::make_shared<ProfileOptions>();
  add_common(heads, *of_heads);
  heads.option("--window", of_heads->window, "Most recent tokens, the query's own included").show_default();
  heads.flag("--each-head", of_heads->each_head, "A row per head, not only per layer");
  heads.footer(kHeadsFooter);
  heads.callback([of_heads] { profile_heads(*of_heads, false); });

  Command ahead = command.subcommand("layer-ahead", "How well queries can be predicted one layer ahead");
  auto of_ahead = std::make_shared<ProfileOptions>();
  add_common(ahead, *of_ahead);
  ahead.footer(kAheadFooter);
  ahead.callback([of_ahead] { profile_heads(*of_ahead, true); });

  Command shift = command.subcommand("query-shift", "How well the next token's choice is known ahead of its query");
  auto of_shift = std::make_shared<ProfileOptions>();
  of_shift->tasks = of_shift->usual_tasks = "niah_single_1,niah_multikey_1,niah_multivalue,vt,cwe,fwe";
  of_shift->length = "512,1K,2K";
  add_common(shift, *of_shift);
  shift.option("--query-window", of_shift->shift.window, "Queries that are regressed on, and the longest distance")
      .show_default();
  shift.option("--share", of_shift->shift.share, "Of the tokens before a query: how many it chooses").show_default();
  shift.option("--epsilon", of_shift->shift.epsilon, "Of the ridge").show_default();
  shift.footer(kShiftFooter);
  shift.callback([of_shift] { profile_shift(*of_shift); });

  Command recall = command.subcommand("scout-recall", "How often each layer needs a recall under scoutattention");
  auto of_recall = std::make_shared<ProfileOptions>();
  add_common(recall, *of_recall);
  recall.option("--budget", of_recall->budget, "The method's budget in tokens").show_default();
  recall.option("--block", of_recall->block, "The method's block in tokens").show_default();
  recall.option("--scope", of_recall->scope, "The method's scope: layer or kv_head").show_default();
  recall.option("--pred-norm", of_recall->pred_norm, "The method's pred_norm: next or own").show_default();
  recall.option("--steps", of_recall->steps, "Decode steps per prompt, and the longest interval").show_default();
  recall.option("--threshold", of_recall->threshold, "Share of the budget that the CPU must stay below").show_default();
  recall.footer(kRecallFooter);
  recall.callback([of_recall] { profile_recall(*of_recall); });
}

}  // namespace tandem::cli
