// Training data of Fluxion's predictor: rows against an independent double-precision model, and folders that survive
// being ended at any place.
#include "eval/fluxion/collection.h"

#include <fmt/format.h>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "engine/model/safetensors.h"
#include "engine/model/weight_files.h"
#include "eval/report/output_folder.h"
#include "methods/fluxion/features.h"
#include "methods/registry.h"
#include "tests/engine/model/model_folder.h"
#include "tests/engine/runtime/slow_model.h"
#include "tests/engine/runtime/tiny.h"
#include "tests/methods/fluxion/naive_features.h"

namespace tandem::testing {
namespace {

using namespace eval;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

CollectOptions small() {
  CollectOptions options;
  options.sinks = 16;
  options.window = 20;
  options.decode_steps = 5;
  options.steps = 2;
  options.taus = {0.02, 0.2};
  options.mass = 0.9;
  return options;
}

/// Reads a tensor of a shard as floats, whatever it is stored as.
template <class T>
std::vector<T> tensor(const TensorFiles& file, const std::string& name) {
  const TensorInfo& info = file.tensors().at(name);
  std::vector<T> out(info.bytes.size() / sizeof(T));
  std::memcpy(out.data(), info.bytes.data(), info.bytes.size());
  return out;
}

/// Of the least-squares line through budgets over log2 of kLabelBlocks: 0, 4, 5, 6, 7, 4.4 in the mean, 29.2 squares.
double slope_of(const float* y) {
  return (-4.4 * y[0] - 0.4 * y[1] + 0.6 * y[2] + 1.6 * y[3] + 2.6 * y[4]) / 29.2;
}

// The tiny model token by token in double precision; labels and features by their definitions over its queries, keys
// and values.
TEST(FluxionSamples, EqualAnIndependentModelsRows) {
  Bench bench(tiny_model());
  const auto prompt = random_prompt(80, 5);
  const CollectOptions options = small();
  const FluxionSamples samples = collect_samples(bench.engine, bench.pool, "p", prompt, 0, options);
  const ModelConfig& c = bench.model.config;
  const auto steps = sampled_steps(options, 0);
  ASSERT_EQ(samples.rows, 2 * c.layers * c.q_heads);

  const auto method = make_method("full");
  const DecodeResult decoded = bench.decode(*method, {prompt}, steps.back() + 1);
  std::vector<std::int32_t> full = prompt;
  full.insert(full.end(), decoded.sequences[0].tokens.begin(), decoded.sequences[0].tokens.end() - 1);
  SlowModel slow(bench.model);
  // [position][layer]: queries; keys and values as they are when the last sampled query runs.
  std::vector<std::vector<SlowModel::Vector>> queries(full.size());
  std::vector<std::vector<std::vector<SlowModel::Vector>>> keys(c.layers), values(c.layers);
  for (std::size_t t = 0; t < full.size(); ++t) {
    slow.step(full[t], {}, [&](std::uint32_t layer, const auto&, const auto& q, const auto& k, const auto& v) {
      queries[t].push_back(q);
      keys[layer] = k;
      values[layer] = v;
    });
  }
  const auto prefill = static_cast<std::uint32_t>(prompt.size() - 1);
  std::size_t row = 0;
  int partial = 0;
  for (const std::uint32_t step : steps) {
    for (std::uint32_t layer = 0; layer < c.layers; ++layer) {
      const Segments at = fluxion_segments(prefill, prefill + step + 1, 16, 20);
      const GivenLayer now(queries[prefill + step][layer], keys[layer], values[layer], at),
          then(queries[prefill - 1][layer], keys[layer], values[layer], at);
      Segments before = at;
      before.tokens = at.prefill;
      const NaiveLabels naive[] = {{now, at, {0.02, 0.9}}, {now, at, {0.2, 0.9}}};
      const NaiveLabels anchor[] = {{then, before, {0.02, 0.9}}, {then, before, {0.2, 0.9}}};
      for (std::uint32_t h = 0; h < c.q_heads; ++h, ++row) {
        EXPECT_EQ(samples.steps[row], static_cast<std::int32_t>(step));
        const float* f = samples.features.data() + row * kFeatures;
        const Vec expected = naive_features(layer, now, then, h, {0.02, 0.9}, BudgetPolicy::fluxion);
        for (int i = 0; i < kFeatures; ++i)
          EXPECT_NEAR(f[i], expected[i], 1e-3 * std::max(1.0, std::abs(expected[i]))) << feature_names()[i];
        for (std::size_t i = 0; i < 2 * kBudgetPolicies; ++i) {
          const NaiveLabels& labels = naive[i / kBudgetPolicies];
          const auto policy = static_cast<BudgetPolicy>(i % kBudgetPolicies);
          const std::size_t entry = row * 2 * kBudgetPolicies + i;
          EXPECT_EQ(samples.streaming[entry] != 0, labels.good(h, policy, {}));
          for (std::size_t b = 0; b < kLabelBlocks.size(); ++b) {
            const float found = samples.budgets[entry * kLabelBlocks.size() + b];
            EXPECT_FLOAT_EQ(found, static_cast<float>(labels.budget(h, policy, kLabelBlocks[b])));
            partial += found > 0 && found < 1 ? 1 : 0;
          }
          EXPECT_NEAR(samples.slopes[entry], slope_of(samples.budgets.data() + entry * kLabelBlocks.size()), 1e-6);
          for (std::size_t b = 1; b < kLabelBlocks.size(); ++b) {
            const double under_anchor = anchor[i / kBudgetPolicies].budget(h, policy, kLabelBlocks[b]);
            EXPECT_FLOAT_EQ(samples.anchor_budgets[entry * 4 + b - 1], static_cast<float>(under_anchor));
          }
        }
      }
    }
  }
  EXPECT_GT(partial, 0);
}

TEST(FluxionSamples, StepsAreDrawnWithoutRepetition) {
  CollectOptions options;
  options.decode_steps = 10;
  options.steps = 4;
  std::set<std::vector<std::uint32_t>> seen;
  for (std::uint64_t prompt = 0; prompt < 20; ++prompt) {
    const auto steps = sampled_steps(options, prompt);
    EXPECT_EQ(std::set<std::uint32_t>(steps.begin(), steps.end()).size(), 4u);
    EXPECT_TRUE(std::is_sorted(steps.begin(), steps.end()));
    EXPECT_LT(steps.back(), 10u);
    EXPECT_EQ(steps, sampled_steps(options, prompt));
    seen.insert(steps);
  }
  EXPECT_GT(seen.size(), 15u);
  options.steps = 10;
  EXPECT_EQ(sampled_steps(options, 3), (std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

CollectSource source(const Engine& engine) {
  CollectSource s;
  s.model = "tiny";
  s.prompts = "random";
  s.shape = engine.shape();
  for (const std::uint32_t length : {80u, 100u}) {
    for (std::uint32_t i = 0; i < 2; ++i) s.list.push_back({"random", length, i});
  }
  s.tokens = [](const CollectPrompt& prompt) { return random_prompt(prompt.length, 7 + prompt.index); };
  return s;
}

TEST(FluxionCollection, IsTheSameWhateverTheThreadsAndHoweverOftenItWasEnded) {
  const TemporaryFolder folder;
  Bench bench(tiny_model());
  const CollectSource from = source(bench.engine);
  std::uint64_t there = 0;  // tokens of prompts that were finished before the first one was begun
  const auto run = [&](const char* name, CollectMode mode, unsigned threads, int prompts) {
    ThreadPool pool(threads);
    int begun = 0;
    return collect_fluxion(folder.path() / name, mode, bench.engine, pool, from, small(),
                           [&](std::uint64_t done, std::uint64_t total, std::string_view prompt) {
                             EXPECT_EQ(total, 360u);
                             if (begun == 0) there = done;
                             if (!prompt.empty() && begun++ == prompts) throw Interrupted();
                           });
  };
  const CollectResult whole = run("whole", CollectMode::create, 1, 99);
  EXPECT_EQ(whole.shards, 4u);
  EXPECT_EQ(whole.rows, 4u * 2 * 2 * 4);
  EXPECT_THROW(run("cut", CollectMode::create, 2, 1), RunError);
  EXPECT_THROW(run("cut", CollectMode::resume, 2, 2), RunError);
  EXPECT_EQ(there, from.list[0].length) << "time left is counted from here";
  EXPECT_EQ(contents(folder.path() / "cut").size(), 4u);  // three shards and the manifest
  // A kill may leave a half-written file beside, and damage is found.
  const fs::path damaged = folder.path() / "cut" / from.list[1].file();
  std::string bytes = read_bytes(damaged);
  bytes[bytes.size() / 2] ^= 1;
  write_bytes(damaged, bytes);
  fs::remove(folder.path() / "cut" / from.list[0].file());
  // Ended before they are made again, a finished collection is none, and does not claim what is not there.
  fs::copy(folder.path() / "whole", folder.path() / "hurt");
  write_bytes(folder.path() / "hurt" / from.list[2].file(), "x");
  EXPECT_THROW(
      {
        CollectSource ends = from;
        ends.tokens = [](const CollectPrompt&) -> std::vector<std::int32_t> { throw Interrupted(); };
        collect_fluxion(folder.path() / "hurt", CollectMode::resume, bench.engine, bench.pool, ends, small());
      },
      RunError);
  const Json hurt = parse_json(read_bytes(folder.path() / "hurt" / "manifest.json"), "JSON");
  EXPECT_EQ(hurt.at("finished"), false);
  EXPECT_EQ(hurt.at("shards").size(), 3u);
  const CollectResult rest = run("cut", CollectMode::resume, 2, 99);
  EXPECT_THAT(rest.repairs, ::testing::ElementsAre(HasSubstr("is missing; it is made again"),
                                                   HasSubstr("is not what was written; it is made again")));
  EXPECT_EQ(rest.rows, whole.rows);
  EXPECT_EQ(contents(folder.path() / "cut"), contents(folder.path() / "whole"));
  run("cut", CollectMode::replace, 1, 99);
  EXPECT_EQ(contents(folder.path() / "cut"), contents(folder.path() / "whole"));
  EXPECT_EQ(bench.engine.kv().bytes_in_use(Tier::device), 0u);

  const auto file = TensorFiles::open_file(folder.path() / "whole" / from.list[2].file());
  EXPECT_EQ(tensor<float>(file, "features").size(), std::size_t{16} * kFeatures);
  EXPECT_EQ(tensor<std::uint8_t>(file, "streaming").size(), 16 * 2 * kBudgetPolicies);
}

template <class Error = InputError, class Work>
std::string refusal(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was refused";
}

/// The tokens of the source's first prompts; then, at prompt `last` of those that are run, `end` decides.
CollectSource ends_at(CollectSource source, int last, std::function<void()> end) {
  source.tokens = [tokens = source.tokens, left = last, end = std::move(end)](const CollectPrompt& prompt) mutable {
    if (left-- == 0) end();
    return tokens(prompt);
  };
  return source;
}
void interrupt() {
  throw Interrupted();
}

TEST(FluxionCollection, NothingIsReplacedBeforeAPromptIsFinished) {
  const TemporaryFolder folder;
  Bench bench(tiny_model());
  const CollectSource from = source(bench.engine);
  const fs::path out = folder.path() / "out", fresh = folder.path() / "fresh";
  collect_fluxion(out, CollectMode::create, bench.engine, bench.pool, from, small());
  write_bytes(out / "notes", "mine");
  const auto before = contents(out);
  CollectOptions other = small();
  other.seed = 43;
  const auto run = [&](const fs::path& path, CollectMode mode, int last, const std::function<void()>& end) {
    return refusal<std::runtime_error>(
        [&] { collect_fluxion(path, mode, bench.engine, bench.pool, ends_at(from, last, end), other); });
  };
  EXPECT_EQ(
      run(out, CollectMode::replace, 0, interrupt),
      fmt::format("Interrupted before a prompt was finished; '{}' is as it was, and the same command begins anew.",
                  out.string()));
  EXPECT_EQ(contents(out), before);
  EXPECT_EQ(run(out, CollectMode::replace, 0, [] { throw_run_error("The disk is full."); }), "The disk is full.");
  EXPECT_EQ(contents(out), before);
  EXPECT_EQ(run(out, CollectMode::replace, 0, [] { throw_input_error("Bad."); }), "Bad.");
  EXPECT_EQ(contents(out), before);
  run(fresh, CollectMode::create, 0, interrupt);
  EXPECT_FALSE(fs::exists(fresh));

  EXPECT_EQ(run(out, CollectMode::replace, 1, interrupt),
            fmt::format("Interrupted: finished prompts are kept in '{}'; the same command with --resume in place of "
                        "--force goes on.",
                        out.string()));
  EXPECT_EQ(contents(out).size(), 3u) << "notes, manifest, one shard";
  EXPECT_EQ(read_bytes(out / "notes"), "mine");
  EXPECT_EQ(run(out, CollectMode::resume, 1, [] { throw_run_error("The disk is full."); }),
            "The disk is full. Finished prompts are kept; the same command goes on.");
  EXPECT_EQ(run(out, CollectMode::resume, 99, interrupt), "nothing was refused");
  EXPECT_EQ(contents(out).size(), 6u);
}

TEST(FluxionCollection, AKillAmidAReplacementIsMadeGood) {
  const TemporaryFolder folder;
  Bench bench(tiny_model());
  const CollectSource from = source(bench.engine);
  const fs::path out = folder.path() / "out", other = folder.path() / "other";
  collect_fluxion(out, CollectMode::create, bench.engine, bench.pool, from, small());
  write_bytes(out / "notes.safetensors", "mine");
  const auto before = contents(out);
  CollectOptions options = small();
  options.seed = 43;
  EXPECT_THROW(
      collect_fluxion(other, CollectMode::create, bench.engine, bench.pool, ends_at(from, 1, interrupt), options),
      RunError);
  // The replacement is written beside what is there ...
  const std::string shard = from.list[0].file();
  write_bytes(out / (shard + ".new"), read_bytes(other / shard));
  write_bytes(out / "manifest.json.new", read_bytes(other / "manifest.json"));
  const auto begun = contents(out);
  for (const CollectMode mode : {CollectMode::replace, CollectMode::resume}) check_collection(out, mode);
  EXPECT_EQ(contents(out), begun) << "still the earlier one";
  // ... and takes its place from here on.
  fs::rename(out / "manifest.json", out / "manifest.json.old");
  EXPECT_THAT(refusal([&] { check_collection(out, CollectMode::create); }), HasSubstr("there is a collection in"));
  auto after = contents(other);
  after["notes.safetensors"] = "mine";
  EXPECT_EQ(contents(out), after);
  // What a killed beginning left in a new folder is nobody's.
  const fs::path fresh = folder.path() / "fresh";
  fs::create_directory(fresh);
  write_bytes(fresh / (shard + ".new"), "half");
  collect_fluxion(fresh, CollectMode::create, bench.engine, bench.pool, from, small());
  auto whole = before;
  whole.erase("notes.safetensors");
  EXPECT_EQ(contents(fresh), whole);
}

TEST(FluxionCollection, NoPromptCountsWhoseWeightsChanged) {
  const TemporaryFolder folder;
  Bench bench(tiny_model());
  const fs::path out = folder.path() / "out";
  CollectSource from = source(bench.engine);
  EXPECT_THROW(
      collect_fluxion(out, CollectMode::create, bench.engine, bench.pool, ends_at(from, 1, interrupt), small()),
      RunError);
  auto before = contents(out);
  for (const bool at_the_end : {false, true}) {
    from.check_weights = [&, left = 2](bool all_bytes) mutable {
      if (at_the_end ? all_bytes : left-- == 0) throw WeightsChanged("They changed.");
    };
    EXPECT_THAT(
        refusal<RunError>([&] { collect_fluxion(out, CollectMode::resume, bench.engine, bench.pool, from, small()); }),
        HasSubstr("They changed. No prompt of this process counts."));
    EXPECT_EQ(contents(out), before);
  }
  from.check_weights = [](bool) { throw WeightsChanged("They changed."); };
  const fs::path fresh = folder.path() / "fresh";
  EXPECT_THAT(
      refusal<RunError>([&] { collect_fluxion(fresh, CollectMode::create, bench.engine, bench.pool, from, small()); }),
      HasSubstr("the same command begins anew"));
  EXPECT_FALSE(fs::exists(fresh));
}

TEST(FluxionCollection, NamesTheProgramsThatMadeShardsAndTheModelsConfig) {
  const TemporaryFolder folder;
  Bench bench(tiny_model());
  CollectSource from = source(bench.engine);
  from.config_hash = "c1";
  const fs::path out = folder.path() / "out", manifest = out / "manifest.json";
  const auto run = [&](const char* commit, CollectMode mode, int last) {
    from.git_commit = commit;
    return refusal<std::runtime_error>(
        [&] { collect_fluxion(out, mode, bench.engine, bench.pool, ends_at(from, last, interrupt), small()); });
  };
  const auto commits = [&] {
    const Json json = parse_json(read_bytes(manifest), "JSON");
    std::string all = json.at("git_commit");
    for (const Json& program : json.value("later_programs", Json::array()))
      all += " " + program.at("git_commit").get<std::string>();
    return all;
  };
  run("abc", CollectMode::create, 1);
  EXPECT_EQ(commits(), "abc");
  EXPECT_EQ(run("def", CollectMode::resume, 0),
            "Interrupted: finished prompts are kept in '" + out.string() + "'; the same command goes on.");
  EXPECT_EQ(commits(), "abc") << "it made nothing";
  run("ghi", CollectMode::resume, 1);
  run("abc", CollectMode::resume, 99);
  EXPECT_EQ(commits(), "abc ghi");
  const std::string finished = read_bytes(manifest);
  run("jkl", CollectMode::resume, 99);
  EXPECT_EQ(read_bytes(manifest), finished) << "nothing was missing";

  from.config_hash = "c2";
  EXPECT_THAT(run("abc", CollectMode::resume, 99), HasSubstr("'config_hash' is \"c1\" there and \"c2\" here"));
  Json older = parse_json(finished, "JSON");
  older["plan"].erase("config_hash");
  older.erase("later_programs");
  write_bytes(manifest, older.dump());
  EXPECT_EQ(run("abc", CollectMode::resume, 99), "nothing was refused") << "before it was recorded";
}

TEST(FluxionCollection, SaysWhatItCannotDo) {
  const TemporaryFolder folder;
  Bench bench(tiny_model());
  const CollectSource from = source(bench.engine);
  const fs::path out = folder.path() / "out", other = folder.path() / "other";
  const auto run = [&](const fs::path& path, CollectMode mode, const CollectOptions& options) {
    return refusal([&] { collect_fluxion(path, mode, bench.engine, bench.pool, from, options); });
  };
  EXPECT_THAT(run(out, CollectMode::resume, small()), HasSubstr("there is no collection in"));
  collect_fluxion(out, CollectMode::create, bench.engine, bench.pool, from, small());
  EXPECT_THAT(run(out, CollectMode::create, small()), HasSubstr("--resume continues it and --force replaces it"));
  {
    const OutputFolder other_process = OutputFolder::lock(out);
    for (const CollectMode mode : {CollectMode::resume, CollectMode::replace})
      EXPECT_THAT(run(out, mode, small()), HasSubstr("Another process is writing"));
  }
  CollectOptions changed = small();
  changed.seed = 43;
  EXPECT_THAT(run(out, CollectMode::resume, changed), HasSubstr("'seed' is 271828 there and 43 here"));
  fs::create_directory(other);
  write_bytes(other / "precious", "x");
  for (const CollectMode mode : {CollectMode::create, CollectMode::replace})
    EXPECT_THAT(run(other, mode, small()), HasSubstr("none of them is a collection's manifest.json"));
  EXPECT_EQ(read_bytes(other / "precious"), "x");
  write_bytes(out / "manifest.json", "{\"schema\": \"tandem-fluxion-9\"}");
  for (const CollectMode mode : {CollectMode::resume, CollectMode::replace})
    EXPECT_THAT(run(out, mode, small()), HasSubstr("this program knows 'tandem-fluxion-2'"));
  write_bytes(out / "manifest.json", "[");
  EXPECT_THAT(run(out, CollectMode::resume, small()), HasSubstr("manifest.json"));
  CollectOptions wide = small();
  wide.window = 90;
  EXPECT_THAT(run(folder.path() / "wide", CollectMode::create, wide), HasSubstr("give longer --lengths"));
  EXPECT_EQ(bench.engine.kv().bytes_in_use(Tier::device), 0u);
}

}  // namespace
}  // namespace tandem::testing
