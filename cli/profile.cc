// tandem profile: statistics of a model that methods build on. `heads`: where attention goes, per layer and head.
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <iterator>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/parse.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "engine/common/error.h"
#include "engine/common/version.h"
#include "eval/heads/prompts.h"
#include "eval/heads/report.h"
#include "eval/report/line_file.h"
#include "eval/ruler/ruler.h"

namespace tandem::cli {
namespace {

constexpr const char* kFooter = R"(
Examples:
  tandem profile heads                                   which heads of the embedded model stream, which retrieve)";

constexpr const char* kHeadsFooter = R"(
Examples:
  tandem profile heads                                   the embedded model on RULER's needle tasks
  tandem profile heads --length 8K --samples 5 --out heads.json
  tandem profile heads --model ~/llama --text-file book.txt --each-head

Hybrid methods live on four properties of attention: sinks and the recent window carry much of it, some heads need
nothing else (streaming heads), the others need few tokens, and the next query is like this one or like what the layer
before predicts. This measures them with full attention at the decode queries that produce the answer (of a text: at the
last 32 tokens of each window), the answer given. The same command gives the same numbers in every run.

The terminal shows means over the heads of a layer, --each-head every head; the JSON file has all of it, per query head
and per KV head, and the budgets for 90, 95 and 99 % of the mass. models/README.md sets the embedded model's figures beside
those of the papers.)";

constexpr std::uint64_t kSeed = 42;

struct ProfileOptions {
  SessionOptions session;
  std::string tasks = "niah", length = "2K", text_file, out;
  std::uint32_t samples = 2, window = 256;
  bool each_head = false, force = false, quiet = false;
};

std::string read_text(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::error_code refused;
  if (!in || std::filesystem::is_directory(file, refused)) throw_input_error("--text-file '{}' cannot be read.", file);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// What can be known before the model is loaded, so that a typo costs nothing.
std::uint32_t check(const ProfileOptions& options, const eval::HeadOptions& heads) {
  const std::uint32_t length = parse_one_length(options.length, "--length");
  if (options.samples < 1 || options.samples > 10000)
    throw_input_error("--samples is {}: give 1 to 10000.", options.samples);
  if (options.window < 1) throw_input_error("--window is 0: give at least the query's own token.");
  if (length <= heads.streaming_sinks + options.window) {
    throw_input_error(
        "--length is {}, but sinks ({}) and --window ({}) cover that already, so every head would be a streaming one: "
        "give more than {} tokens or a smaller --window.",
        length, heads.streaming_sinks, options.window, heads.streaming_sinks + options.window);
  }
  check_new_file(options.out, options.force);
  return length;
}

void profile_heads(const ProfileOptions& options) {
  eval::HeadOptions heads;
  heads.window = options.window;
  const std::uint32_t length = check(options, heads);
  const auto tasks = eval::expand_ruler_tasks(options.tasks);
  const std::string text = options.text_file.empty() ? "" : read_text(options.text_file);

  Session session = open_session(options.session);
  const Model& model = session.model;
  const ModelConfig& c = model.config;
  if (length > c.max_positions) {
    throw_input_error("--length: {} is more than the {} positions of model '{}' (max_position_embeddings).", length,
                      c.max_positions, model.name);
  }
  eval::HeadSource source;
  source.tandem_version = std::string(version());
  source.git_commit = std::string(git_commit());
  source.model = model.name;
  source.weights_hash = model.weights_hash;
  source.tokenizer_hash = model.tokenizer->hash();
  source.command = fmt::format("tandem profile heads --model {} --length {} --samples {} --window {}", model.name,
                               options.length, options.samples, options.window);
  std::vector<eval::HeadPrompt> prompts;
  if (options.text_file.empty()) {
    prompts = eval::ruler_head_prompts(model, tasks, length, options.samples, kSeed);
    source.command += " --tasks " + fmt::format("{}", fmt::join(tasks, ","));
    source.prompts = fmt::format("RULER, embedded: {}", fmt::join(tasks, ", "));
  } else {
    prompts = eval::text_head_prompts(model, text, options.text_file, length, options.samples);
    source.command += " --text-file " + options.text_file;
    source.prompts = options.text_file;
  }

  // Pages for one prompt with its answer; nothing is decoded.
  std::size_t longest = 0;
  for (const eval::HeadPrompt& prompt : prompts) longest = std::max(longest, prompt.tokens.size());
  const KvShape kv{c.layers, c.kv_heads, c.head_dim};
  session.engine.kv.device_bytes = (blocks_for(static_cast<std::uint32_t>(longest)) + 1) * c.layers * kv.slot_bytes();
  session.engine.kv.host_bytes = c.layers * kv.slot_bytes();  // the least a store takes
  session.engine.max_batch = 1;
  session.engine.precision = DType::f32;  // statistics of the model, not of a way to store its KV
  Engine engine(model, *session.device, *session.pool, session.engine);
  Progress progress("profiling heads", Progress::standard(options.quiet));
  eval::HeadProfile profile;
  try {
    profile = eval::profile_heads(model, engine, *session.pool, prompts, heads,
                                  [&](std::uint64_t done, std::uint64_t total) { progress.update(done, total); });
  } catch (const Interrupted&) {
    progress.finish();
    throw RunError("Interrupted; nothing was written.");
  }
  progress.finish();
  fmt::print("{}", eval::head_report_text(profile, source, options.each_head));
  if (options.out.empty()) return;
  eval::write_file(options.out, eval::head_profile_json(profile, source).dump(1) + "\n");
  fmt::print("\n{}: all heads, as JSON\n", options.out);
}

}  // namespace

void add_profile(CLI::App& app) {
  auto* command = app.add_subcommand("profile", "Statistics of a model that methods build on: heads");
  command->require_subcommand(1);
  command->footer(kFooter);
  auto* heads = command->add_subcommand("heads", "Attention heads: sinks, window, streaming, budgets, predictability");
  auto options = std::make_shared<ProfileOptions>();
  heads->add_option("--model", options->session.model, "'embedded' or a Hugging Face folder")->capture_default_str();
  heads->add_option("--length", options->length, "Context length in tokens: 4K, 32768")->capture_default_str();
  heads->add_option("--samples", options->samples, "Samples per task, or windows of the text")->capture_default_str();
  heads->add_option("--tasks", options->tasks, "RULER tasks or groups: niah, single, multikey")->capture_default_str();
  heads->add_option("--text-file", options->text_file, "Profile on windows of this text instead of RULER tasks");
  heads->add_option("--window", options->window, "Most recent tokens, the query's own included")->capture_default_str();
  heads->add_option("--out", options->out, "Write all numbers to this JSON file");
  heads->add_flag("--force", options->force, "Replace the file");
  heads->add_flag("--each-head", options->each_head, "A row per head, not only per layer");
  heads
      ->add_option("--threads", options->session.threads,
                   "CPU threads for kernels; 0: all that this process may use, pinned unless TANDEM_PIN=0")
      ->capture_default_str();
  heads->add_flag("--quiet", options->quiet, "No progress line");
  heads->footer(kHeadsFooter);
  heads->callback([options] { profile_heads(*options); });
}

}  // namespace tandem::cli
