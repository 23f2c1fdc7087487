// tandem profile: statistics of a model that methods build on. `heads`: where attention goes, per layer and head;
// `layer-ahead`: how well the next layer's queries can be predicted; `scout-recall`: how often ScoutAttention recalls;
// `query-shift`: how well the next token's choice is known before its query is.
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iterator>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/input.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "engine/common/json.h"
#include "eval/heads/report.h"
#include "eval/report/line_file.h"
#include "eval/ruler_tasks/ruler.h"
#include "eval/run/option_values.h"
#include "methods/registry.h"

namespace tandem::cli {
namespace {

constexpr const char* kProfileFooter = R"(
Examples:
  tandem profile heads                                   which heads of the embedded model stream, which retrieve; 20 s
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
  tandem profile query-shift                             the embedded model on six RULER tasks at three lengths; 30 s
  tandem profile query-shift --model ~/qwen --text-file book.txt --length 8K --out shift.json

AsyncSpade chooses the tokens of a step one step ahead, with a query predicted from the latest ones. This prints how many
of the true query's best tokens earlier queries choose too, by their distance (figure 4), and queries predicted by each
reading of the paper (figure 5). The default of asyncspade is the best of them on the embedded model;
studies/notes/asyncspade.md has the table.)";

constexpr std::uint64_t kPromptSeed = 42;

struct ProfileOptions {
  SessionOptions session;
  std::string usual_tasks = "niah", tasks = usual_tasks, length = "2K", text_file;
  std::uint32_t samples = 2;
  eval::HeadOptions heads;
  eval::RecallOptions recall;
  std::string budget = "512";
  std::uint32_t block = 32;
  std::string scope = "layer", pred_norm = "next";
  eval::ShiftOptions shift;
  OutFile out;
  bool each_head = false, quiet = false;
};

/// The model with the prompts it is profiled on.
struct Subject {
  Session session;
  std::vector<eval::HeadPrompt> prompts;
  eval::HeadSource source;  // its command up to the profile's own options

  std::uint32_t longest() const {
    std::size_t most = 0;
    for (const eval::HeadPrompt& prompt : prompts) most = std::max(most, prompt.tokens.size());
    return static_cast<std::uint32_t>(most);
  }
};

Subject open_subject(const ProfileOptions& a, const char* what, const std::vector<std::uint32_t>& lengths) {
  eval::check_range("--samples", a.samples, 1, 10000);
  a.out.check({".json"});
  const bool ruler = a.text_file.empty();
  if (!ruler && a.tasks != a.usual_tasks)
    throw_input_error(
        "--tasks changes nothing with --text-file, whose windows take the tasks' place: give one of them.");
  const auto tasks = eval::expand_ruler_tasks(a.tasks);
  const std::string text = ruler ? "" : read_text(a.text_file, fmt::format("--text-file '{}'", a.text_file));
  Subject subject{open_session(a.session, a.quiet), {}, {}};
  const Model& model = subject.session.model;
  for (const std::uint32_t length : lengths) {
    if (length <= model.config.max_positions) continue;
    throw_input_error("--length: {} is more than the {} positions of model '{}' (max_position_embeddings).", length,
                      model.config.max_positions, model.name);
  }
  for (const std::uint32_t length : lengths) {
    auto more = ruler ? eval::ruler_head_prompts(model, tasks, length, a.samples, kPromptSeed)
                      : eval::text_head_prompts(model, text, a.text_file, length, a.samples);
    std::move(more.begin(), more.end(), std::back_inserter(subject.prompts));
  }
  eval::HeadSource& source = subject.source;
  name_origin(subject.session, source);
  source.gpu = subject.session.device->gpu_name();
  source.prompts = ruler ? fmt::format("RULER, embedded: {}", fmt::join(tasks, ", ")) : a.text_file;
  source.command = fmt::format(
      "tandem profile {} --model {} --length {} --samples {}{}{}", what, eval::shell_word(model.name), a.length,
      a.samples, a.session.device == SessionOptions().device ? "" : " --device " + a.session.device,
      ruler ? fmt::format(" --tasks {}", fmt::join(tasks, ",")) : " --text-file " + eval::shell_word(a.text_file));
  return subject;
}

/// Has `profile` look at the subject, prints the result as text, and writes it as JSON, in which are `contents`.
void show_profile(const ProfileOptions& a, const Subject& subject, const char* doing, const auto& profile,
                  const auto& text, const auto& json, const char* contents) {
  const Session& session = subject.session;
  Engine engine(session.model, *session.device, *session.pool, session.engine);
  const auto result =
      with_progress(doing, a.quiet, [&](const auto& progress) { return profile(session, engine, progress); });
  session.weights->check_bytes();
  print("{}", text(result, subject.source));
  if (a.out.name.empty()) return;
  a.out.write(json_text(json(result, subject.source), 1) + "\n");
  print("\n{}: {}, as JSON\n", a.out.name, contents);
}

/// `ahead`: the report is about predicted queries.
void profile_heads(const ProfileOptions& a, bool ahead) {
  const std::uint32_t length = eval::parse_one_length(a.length, "--length");
  const std::uint32_t sinks = a.heads.streaming_sinks, window = a.heads.window;
  expect(ahead || window >= 1, "--window", window, "at least the query's own token");
  expect(length >= 2, "--length", length, "at least 2 tokens, one for the query");
  if (!ahead && length <= std::uint64_t{sinks} + window) {
    throw_input_error(
        "--length is {}, but sinks ({}) and --window ({}) cover that already, so every head would be a streaming one: "
        "give more than {} tokens or a smaller --window.",
        length, sinks, window, std::uint64_t{sinks} + window);
  }
  Subject subject = open_subject(a, ahead ? "layer-ahead" : "heads", {length});
  if (!ahead) subject.source.command += fmt::format(" --window {}", window);
  keep_one_prompt(subject.session, subject.longest(), DType::f32);  // the model's statistics, not a KV store's
  show_profile(
      a, subject, "profiling heads",
      [&](const Session& on, Engine& engine, const auto& progress) {
        return eval::profile_heads(on.model, engine, *on.pool, subject.prompts, a.heads, progress);
      },
      [&](const eval::HeadProfile& profile, const eval::HeadSource& source) {
        return ahead ? eval::layer_ahead_text(profile, source) : eval::head_report_text(profile, source, a.each_head);
      },
      eval::head_profile_json, "all heads");
}

void profile_recall(ProfileOptions& a) {
  const std::uint32_t length = eval::parse_one_length(a.length, "--length");
  eval::RecallOptions& recall = a.recall;
  eval::check_range("--steps", recall.steps, 2, 100000);
  expect(recall.threshold > 0 && recall.threshold < 1, "--threshold", recall.threshold,
         "a share of the budget between 0 and 1");
  recall.budget = eval::parse_one_length(a.budget, "--budget");
  recall.method = fmt::format("scoutattention:budget={},block={},pred_norm={},scope={}", recall.budget, a.block,
                              a.pred_norm, a.scope);
  make_method(recall.method);  // its errors, before the model is loaded
  Subject subject = open_subject(a, "scout-recall", {length});
  subject.source.command += fmt::format(" --budget {} --block {} --pred-norm {} --scope {} --steps {} --threshold {}",
                                        a.budget, a.block, a.pred_norm, a.scope, recall.steps, recall.threshold);
  Session& session = subject.session;
  ModelConfig& c = session.model.config;
  if (length + recall.steps > c.max_positions) {
    throw_input_error("--length {} and --steps {} are more than the {} positions of model '{}'.", length, recall.steps,
                      c.max_positions, session.model.name);
  }
  c.stop_tokens.clear();  // every prompt has all steps
  keep_one_prompt(session, subject.longest() + recall.steps, session.engine.precision);
  KvBudget& kv = session.engine.kv;  // for what the method makes of the prompt, too
  kv.host_bytes = kv.device_bytes;
  kv.device_bytes *= 2;
  show_profile(
      a, subject, "profiling recalls",
      [&](const Session&, Engine& engine, const auto& progress) {
        return eval::profile_recall(engine, subject.prompts, recall, progress);
      },
      eval::recall_text, eval::recall_json, "intervals for scoutattention:recall=FILE");
}

void profile_shift(const ProfileOptions& a) {
  const eval::ShiftOptions& shift = a.shift;
  expect(shift.window >= 1 && shift.window <= kMaxWindow, "--query-window", shift.window,
         fmt::format("1 to {} queries", kMaxWindow));
  expect(shift.share > 0 && shift.share < 1, "--share", shift.share, "a share of the tokens between 0 and 1");
  expect(shift.epsilon > 0 && std::isfinite(shift.epsilon), "--epsilon", shift.epsilon, "a number above 0");
  Subject subject = open_subject(a, "query-shift", eval::parse_lengths(a.length, "--length"));
  subject.source.command +=
      fmt::format(" --query-window {} --share {} --epsilon {}", shift.window, shift.share, shift.epsilon);
  for (const eval::HeadPrompt& prompt : subject.prompts) {
    if (prompt.first_query > shift.window) continue;
    throw_input_error(
        "--length {} is too short: a prompt has {} tokens before its answer, and --query-window {} needs {}.", a.length,
        prompt.first_query, shift.window, shift.window + 1);
  }
  keep_one_prompt(subject.session, subject.longest(), DType::f32);
  show_profile(
      a, subject, "profiling queries",
      [&](const Session& on, Engine& engine, const auto& progress) {
        return eval::profile_query_shift(on.model, engine, *on.pool, subject.prompts, shift, progress);
      },
      eval::query_shift_text, eval::query_shift_json, "all layers and readings");
}

void add_common(Command command, ProfileOptions& options) {
  add_compute_options(command, options.session);
  command.option("--length", options.length, "Context length in tokens: 4K, 32768; query-shift takes several");
  command.option("--samples", options.samples, "Samples per task, or windows of the text");
  command.option("--tasks", options.tasks, "RULER tasks or groups: niah, single, multikey");
  command.option("--text-file", options.text_file, "Profile on windows of this text instead of RULER tasks");
  options.out.add_to(command, "Write all numbers to this JSON file");
  command.flag("--quiet", options.quiet, "No progress line");
}

}  // namespace

void profile_model_figure(const std::string& figure, const OutFile& out, unsigned threads, bool quiet) {
  ProfileOptions options;
  options.out = out;
  options.quiet = quiet;
  options.session.threads = threads;
  print("The embedded model, which is none of the paper's: what is comparable is the method, not the figure.\n\n");
  figure == "table1" ? profile_heads(options, /*ahead=*/true) : profile_recall(options);
}

void add_profile(Command app) {
  Command command = app.group(
      "profile", "Statistics of a model that methods build on: heads, layer-ahead, recalls, shift", kProfileFooter);
  Command heads =
      command.subcommand("heads", "Attention heads: sinks, window, streaming, budgets, predictability", kHeadsFooter);
  auto of_heads = std::make_shared<ProfileOptions>();
  add_common(heads, *of_heads);
  heads.option("--window", of_heads->heads.window, "Most recent tokens, the query's own included");
  heads.flag("--each-head", of_heads->each_head, "A row per head, not only per layer");
  heads.callback([of_heads] { profile_heads(*of_heads, false); });

  Command ahead = command.subcommand("layer-ahead", "How well queries can be predicted one layer ahead", kAheadFooter);
  auto of_ahead = std::make_shared<ProfileOptions>();
  add_common(ahead, *of_ahead);
  ahead.callback([of_ahead] { profile_heads(*of_ahead, true); });

  Command shift =
      command.subcommand("query-shift", "How well the next token's choice is known ahead of its query", kShiftFooter);
  auto of_shift = std::make_shared<ProfileOptions>();
  of_shift->tasks = of_shift->usual_tasks = "niah_single_1,niah_multikey_1,niah_multivalue,vt,cwe,fwe";
  of_shift->length = "512,1K,2K";
  add_common(shift, *of_shift);
  shift.option("--query-window", of_shift->shift.window, "Queries that are regressed on, and the longest distance");
  shift.option("--share", of_shift->shift.share, "Of the tokens before a query: how many it chooses");
  shift.option("--epsilon", of_shift->shift.epsilon, "Of the ridge");
  shift.callback([of_shift] { profile_shift(*of_shift); });

  Command recall =
      command.subcommand("scout-recall", "How often each layer needs a recall under scoutattention", kRecallFooter);
  auto of_recall = std::make_shared<ProfileOptions>();
  add_common(recall, *of_recall);
  recall.option("--budget", of_recall->budget, "The method's budget in tokens");
  recall.option("--block", of_recall->block, "The method's block in tokens");
  recall.option("--scope", of_recall->scope, "The method's scope: layer or kv_head");
  recall.option("--pred-norm", of_recall->pred_norm, "The method's pred_norm: next or own");
  recall.option("--steps", of_recall->recall.steps, "Decode steps per prompt, and the longest interval");
  recall.option("--threshold", of_recall->recall.threshold, "Share of the budget that the CPU must stay below");
  recall.callback([of_recall] { profile_recall(*of_recall); });
}

}  // namespace tandem::cli
