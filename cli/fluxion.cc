// tandem fluxion: what Fluxion's predictor is trained on. `collect` writes the data set; methods/fluxion/train.py
// trains.
#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <map>
#include <span>

#include "cli/commands.h"
#include "cli/eval.h"
#include "cli/input.h"
#include "cli/output.h"
#include "engine/kernels/isa.h"
#include "engine/model/safetensors.h"
#include "eval/fluxion/collection.h"
#include "eval/heads/heads.h"
#include "eval/report/table.h"
#include "eval/ruler/ruler_dataset.h"
#include "eval/ruler_tasks/ruler.h"
#include "eval/ruler_tasks/texts.h"
#include "eval/run/option_values.h"

namespace tandem::cli {
namespace {

constexpr const char* kFluxionFooter = R"(
Examples:
  tandem fluxion collect --out data                      the embedded model on all RULER tasks
  python3 methods/fluxion/train.py --data data --out fluxion.safetensors
                                                         trains a predictor from it (needs PyTorch)
  tandem compare --methods full,fluxion:heads=oracle,line=cover,fluxion:heads=fluxion.safetensors \
    --head-errors                                        its regret: beside labels measured in the run
  scripts/fluxion_tau.sh runs/tau                        all of that at several tau, with a plot)";

constexpr const char* kCollectFooter = R"(
Examples:
  tandem fluxion collect --out data                      13 tasks at three lengths, a few minutes on two cores
  tandem fluxion collect --out data --tasks niah --lengths 2K,8K --samples 20
  tandem fluxion collect --out data --model ~/llama --text-file book.txt --lengths 32K --samples 8
  tandem fluxion collect --out data --model ~/llama --lengths 32K --device cuda
  tandem fluxion collect --out data --tau 0.05,0.1,0.2   labels at several tau: train.py takes one of them
  tandem fluxion collect --out data --resume             goes on after ^C, a kill or a full disk

Fluxion decides in every step and for every query head how much of the KV in host memory it attends, and in blocks of
which size. A small network predicts that from 41 numbers that a step has at hand. This makes its training data: full
attention decodes each prompt; at --steps of its --decode-steps, drawn at random, each head of each layer gives a row of
features and what would have been right: the least budget at blocks of 1, 16, 32, 64 and 128 tokens under which, and
under every larger one, the head's output is off by at most --tau of the layer's largest output (Eq. 2 of the paper,
which asks for the least budget alone), how the budget grows with the block, and whether sinks and window alone suffice.
Rows also have what two other rules would ask for: output, where tau is of the head's own output, and score, where
--mass of the attention must be covered.

A prompt is prefilled once and keeps KV in f32; `tandem bench prefill --model DIR` says how long that takes. Labels
take longer than a model's decode steps, and are made by the CPU with --device cuda too. Prompts of several folders are
learned together: collect tasks under a second --seed, or a text beside them.

The windows of --text-file are spread evenly over the text, whatever the seed, and overlap where it is shorter than all of
them; train.py holds out the text's end.

Prompts must be longer than sinks and window together. The folder gets one safetensors file per prompt and a
manifest.json that says what is in it (eval/fluxion/samples.h lists the tensors). The same command gives the same bytes,
whatever the threads and however often it was ended and continued; on a GPU nobody has tried that.)";

struct CollectArguments {
  SessionOptions session;
  eval::CollectOptions collect;
  std::string tasks = "all", lengths = "1K,2K,4K", text_file, out;
  eval::RulerFiles files;
  std::uint32_t samples = 2;
  bool force = false, resume = false, quiet = false;
};

void check(const CollectArguments& a) {
  const eval::CollectOptions& o = a.collect;
  eval::check_range("--samples", a.samples, 1, 10000);
  eval::check_range("--decode-steps", o.decode_steps, 1, 100000);
  expect(o.steps >= 1 && o.steps <= o.decode_steps, "--steps", o.steps,
         fmt::format("1 to --decode-steps ({})", o.decode_steps));
  if (o.taus.empty() || o.taus.size() > 100) throw_input_error("--tau has {} values: give 1 to 100.", o.taus.size());
  for (const double tau : o.taus) {
    expect(tau > 0 && tau < 1, "--tau", tau, "a share of the largest output between 0 and 1");
    if (std::count(o.taus.begin(), o.taus.end(), tau) > 1) throw_input_error("--tau has {} twice.", tau);
  }
  expect(o.mass > 0 && o.mass < 1, "--mass", o.mass, "a share of the attention between 0 and 1");
  if (o.sinks > 1u << 20 || o.window > 1u << 20 || o.window < 1) {
    throw_input_error("--sinks is {} and --window is {}: give at most 1048576 tokens, and a window of at least 1.",
                      o.sinks, o.window);
  }
  if (!a.text_file.empty() && a.tasks != CollectArguments().tasks)
    throw_input_error(
        "--tasks changes nothing with --text-file, whose windows take the tasks' place: give one of them.");
  if (!a.text_file.empty() && !a.files.empty())
    throw_input_error(
        "--ruler-essays and --ruler-qa change nothing with --text-file, whose windows take the tasks' place: give one "
        "or the other.");
  if (a.force && a.resume)
    throw_input_error("--force replaces a collection and --resume continues it: give one of them.");
}

/// Files by their content: one that changed is another plan.
std::string file_in_plan(const std::string& file, const std::string& hash) {
  return fmt::format("{}, {}", std::filesystem::path(file).filename().string(), hash);
}

/// The texts that RULER's tasks are made of, as methods/fluxion/collected.py reads them.
std::string prompts_of(const eval::RulerTexts& texts, const std::string& essays) {
  std::string text = "RULER, embedded";
  if (texts.essays) text += "; essays: " + file_in_plan(essays, texts.essays->hash);
  if (texts.squad) text += "; qa_1: " + file_in_plan(texts.squad->file, texts.squad->hash);
  if (texts.hotpot) text += "; qa_2: " + file_in_plan(texts.hotpot->file, texts.hotpot->hash);
  return text;
}

eval::CollectSource source_of(const CollectArguments& a, const Session& session,
                              const std::vector<std::uint32_t>& lengths, const std::vector<std::string>& tasks) {
  const Model& model = session.model;
  eval::CollectSource source;
  name_origin(session, source);
  source.config_hash = model.config_hash;
  source.isa = to_string(active_isa());
  if (const std::string gpu = session.device->gpu_name(); !gpu.empty()) source.isa += ", " + gpu;
  for (const std::uint32_t length : lengths) {
    for (const std::string& task : tasks) {
      for (std::uint32_t i = 0; i < a.samples; ++i) source.list.push_back({task, length, i});
    }
  }
  if (!a.text_file.empty()) {
    std::map<std::uint32_t, std::vector<eval::HeadPrompt>> windows;
    const std::string text = read_text(a.text_file, fmt::format("--text-file '{}'", a.text_file));
    source.prompts = file_in_plan(a.text_file, hash_digits(text));
    for (const std::uint32_t length : lengths)
      windows[length] = eval::text_head_prompts(model, text, a.text_file, length, a.samples);
    source.tokens = [windows = std::move(windows)](const eval::CollectPrompt& prompt) {
      const eval::HeadPrompt& window = windows.at(prompt.length)[prompt.index];
      return std::vector(window.tokens.begin(), window.tokens.begin() + window.first_query + 1);
    };
    return source;
  }
  const eval::RulerTexts texts = eval::read_ruler_texts(a.files, tasks);
  source.prompts = prompts_of(texts, a.files.essays);
  const eval::TokenCounter counter = [&](std::string_view text) {
    return static_cast<std::uint32_t>(model.tokenizer->encode(text, /*add_bos=*/true).size());
  };
  for (const std::uint32_t length : lengths) {
    for (const std::string& task : tasks)
      eval::check_ruler_samples(task, length, a.samples, a.collect.seed, counter, texts);
  }
  source.tokens = [&model, counter, texts, seed = a.collect.seed](const eval::CollectPrompt& prompt) {
    const auto sample = eval::make_ruler_sample(prompt.task, prompt.length, prompt.index, seed, counter, texts);
    return model.tokenizer->encode(sample.prompt, /*add_bos=*/true);
  };
  return source;
}

void collect(CollectArguments& a) {
  check(a);
  if (a.out.empty()) throw_input_error("--out is missing: name the folder that the training data go to.");
  check_trained(a.session);
  const std::vector<std::uint32_t> lengths = eval::parse_lengths(a.lengths, "--lengths");
  std::vector<std::string> tasks = {"text"};
  if (a.text_file.empty()) tasks = eval::expand_ruler_tasks(a.tasks);
  const auto mode = a.resume  ? eval::CollectMode::resume
                    : a.force ? eval::CollectMode::replace
                              : eval::CollectMode::create;
  eval::check_collection(a.out, mode);
  Session session = open_session(a.session, a.quiet);
  ModelConfig& c = session.model.config;
  const auto [least, most] = std::minmax_element(lengths.begin(), lengths.end());
  const std::uint32_t longest = *most, shortest = *least;
  if (shortest <= a.collect.sinks + a.collect.window + kPageTokens) {
    throw_input_error(
        "--lengths: of {} tokens, sinks ({}) and window ({}) leave nothing for the host, so there is nothing to choose "
        "from: give longer ones.",
        shortest, a.collect.sinks, a.collect.window);
  }
  if (longest + a.collect.decode_steps > c.max_positions) {
    throw_input_error("--lengths: {} and --decode-steps {} are more than the {} positions of model '{}'.", longest,
                      a.collect.decode_steps, c.max_positions, session.model.name);
  }
  c.stop_tokens.clear();  // every prompt has all steps
  // What the model computes, not a way to store its KV.
  keep_one_prompt(session, longest + a.collect.decode_steps, DType::f32);
  eval::CollectSource source = source_of(a, session, lengths, tasks);
  source.check_weights = [&](bool all_bytes) { all_bytes ? session.weights->check_bytes() : session.weights->check(); };
  Engine engine(session.model, *session.device, *session.pool, session.engine);
  source.shape = engine.shape();
  Progress progress("collecting, tokens of context", a.quiet);
  const eval::CollectResult result =
      eval::collect_fluxion(a.out, mode, engine, *session.pool, source, a.collect, progress.hook());
  progress.finish();
  for (const std::string& repair : result.repairs) say(repair);
  print("{}: {}, {} rows of {} features\n", a.out, eval::counted(result.shards, "prompt"), result.rows, kFeatures);
}

}  // namespace

void add_fluxion(Command app) {
  Command command = app.group("fluxion", "Training data for Fluxion's predictor", kFluxionFooter);
  Command sub =
      command.subcommand("collect", "Features and labels of every head at sampled decode steps", kCollectFooter);
  auto a = std::make_shared<CollectArguments>();
  sub.option("--out", a->out, "Folder for the data");
  add_compute_options(sub, a->session);
  sub.option("--tasks", a->tasks, "RULER tasks or groups: all, niah, single, multikey, qa");
  add_dataset_options(sub, eval::ruler_file_options(a->files));
  sub.option("--text-file", a->text_file, "Windows of this text instead of RULER tasks");
  sub.option("--lengths", a->lengths, "Context lengths in tokens: 512,4K,32K");
  sub.option("--samples", a->samples, "Prompts per task and length");
  sub.option("--decode-steps", a->collect.decode_steps, "Tokens decoded per prompt");
  sub.option("--steps", a->collect.steps, "Of these, how many are sampled");
  sub.option("--sinks", a->collect.sinks, "First tokens, on the device");
  sub.option("--window", a->collect.window, "Last prompt tokens, on the device");
  sub.option("--tau", a->collect.taus,
             "Error that is good enough, of the layer's largest output; several, with commas, give labels for each");
  sub.option("--mass", a->collect.mass, "Attention that the score rule must cover");
  sub.option("--seed", a->collect.seed,
             "Of prompts and sampled steps; another one than the runs that judge the predictor have");
  sub.flag("--force", a->force, "Replace a collection in that folder");
  sub.flag("--resume", a->resume, "Continue a collection in that folder; damaged files of it are made again");
  sub.flag("--quiet", a->quiet, "No progress line");
  sub.callback([a] { collect(*a); });
}

}  // namespace tandem::cli
