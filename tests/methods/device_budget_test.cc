// device=SHARE of methods that have it: the same bits as with all KV on the device, within its budget, for every
// policy; through appended turns, forks, and prompts that the device cannot hold.
#include "engine/mechanisms/device_budget/device_budget.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "engine/runtime/decode_session.h"
#include "methods/registry.h"
#include "tests/engine/kernels/kernel_test.h"
#include "tests/engine/runtime/tiny.h"
#include "tests/files.h"

namespace tandem::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Logits = std::vector<std::vector<float>>;
using Prompts = std::vector<std::vector<std::int32_t>>;

constexpr std::uint32_t kManyLayers = 20;
const Prompts kTwoPrompts = {random_prompt(700, 1), random_prompt(200, 2)};

/// An engine with device memory for so many pages, counted in all layers.
struct Machine {
  explicit Machine(std::uint32_t layers = kManyLayers, std::size_t pages = 400, std::unique_ptr<Device> on = sim())
      : Machine(layers, options(layers, pages), std::move(on)) {}
  Machine(std::uint32_t layers, const EngineOptions& options, std::unique_ptr<Device> on = sim())
      : model(tiny_model(true, layers)), device(std::move(on)), pool(2), engine(model, *device, pool, options) {}
  static EngineOptions options(std::uint32_t layers, std::size_t pages) {
    EngineOptions engine;
    engine.max_batch = 3;
    const std::size_t page = KvShape{layers, 2, 16}.slot_bytes() * layers;
    engine.prefill_chunk = 128;
    engine.host_prompts = true;
    engine.kv = {.device_bytes = pages * page, .host_bytes = 400 * page};
    return engine;
  }
  std::vector<std::unique_ptr<Prefix>> prefill(const Prompts& prompts) {
    std::vector<std::unique_ptr<Prefix>> prefixes;
    for (const auto& prompt : prompts) prefixes.push_back(engine.prefill(prompt));
    return prefixes;
  }
  DecodeResult decode(const std::string& spec, const std::vector<std::unique_ptr<Prefix>>& prefixes,
                      std::uint32_t steps, Logits* logits = nullptr) {
    std::vector<DecodeRequest> requests;
    for (const auto& prefix : prefixes) requests.push_back({prefix.get(), steps});
    return engine.decode(*make_method(spec), requests, {.logits = logits});
  }
  Logits logits(const std::string& spec, const std::vector<std::unique_ptr<Prefix>>& prefixes, std::uint32_t steps) {
    Logits all;
    decode(spec, prefixes, steps, &all);
    return all;
  }
  Model model;
  std::unique_ptr<Device> device;
  ThreadPool pool;
  Engine engine;
};

void expect_the_same(const Logits& found, const Logits& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t step = 0; step < found.size(); ++step)
    ASSERT_TRUE(same_bits(found[step], expected[step])) << "other bits in step " << step;
}

struct Budgeted {
  std::string spec, resident = "full";
};
class DeviceBudgets : public ::testing::TestWithParam<Budgeted> {};
INSTANTIATE_TEST_SUITE_P(
    Policies, DeviceBudgets,
    ::testing::Values(Budgeted{"full:device=0.1,evict=fixed,block=16"}, Budgeted{"full:device=0.1,evict=lru,block=16"},
                      Budgeted{"full:device=0.1,block=16"}, Budgeted{"full:device=0.3,block=256,evict=lru"},
                      Budgeted{"full:device=0.1,look_ahead=0"}, Budgeted{"full:device=0.5,look_ahead=3"},
                      Budgeted{"quest:budget=160,device=0.1", "quest:budget=160"},
                      Budgeted{"quest:budget=160,device=0.2,evict=lru", "quest:budget=160"},
                      Budgeted{"quest:budget=64,device=0.1,evict=fixed,sinks=16", "quest:budget=64,sinks=16"},
                      Budgeted{"quest:budget=160,device=0.2,evict=attention,page=32,dense_layers=1",
                               "quest:budget=160,page=32,dense_layers=1"},
                      Budgeted{"quest:budget=96,device=0.3,group_reduce=per_head",
                               "quest:budget=96,group_reduce=per_head"},
                      Budgeted{"quest:budget=96,device=0.2,group_reduce=layer", "quest:budget=96,group_reduce=layer"},
                      // Everything is attended: without a choice, no step waits for the device half-way.
                      Budgeted{"quest:device=0.2,evict=fixed"}, Budgeted{"quest:device=0.2,evict=attention"},
                      Budgeted{"tova:budget=96,device=0.1", "tova:budget=96"}),
    [](const auto& one) {
      std::string name = one.param.spec;
      std::ranges::replace_if(
          name, [](unsigned char c) { return !std::isalnum(c); }, '_');
      return name;
    });

TEST_P(DeviceBudgets, GiveTheSameBits) {
  Machine machine;
  const auto prefixes = machine.prefill(kTwoPrompts);
  expect_the_same(machine.logits(GetParam().spec, prefixes, 20), machine.logits(GetParam().resident, prefixes, 20));
}

// A decode that goes on, and two turns.
TEST_P(DeviceBudgets, GiveThemInSessions) {
  const auto run = [&](const std::string& spec) {
    Machine machine;
    Logits logits;
    std::vector<DecodeRequest> requests;
    const auto prefixes = machine.prefill(kTwoPrompts);
    for (const auto& prefix : prefixes) requests.push_back({prefix.get(), 7});
    const auto method = make_method(spec);
    const auto session = machine.engine.open_session(*method, requests);
    for (const auto& prefix : prefixes) machine.engine.release(*prefix);
    session->decode({.logits = &logits});
    session->decode({.logits = &logits});
    session->append(0, random_prompt(90, 5), 6);
    session->append(1, random_prompt(300, 6), 19);
    session->decode({.logits = &logits});
    session->append(0, random_prompt(33, 7), 3);
    session->decode({.logits = &logits});
    return logits;
  };
  expect_the_same(run(GetParam().spec), run(GetParam().resident));
}

TEST_P(DeviceBudgets, GiveThemWithRealThreads) {
  Machine on_sim, real(kManyLayers, 400, make_emu_device({.host_worker_threads = 1}));
  expect_the_same(real.logits(GetParam().spec, real.prefill(kTwoPrompts), 5),
                  on_sim.logits(GetParam().resident, on_sim.prefill(kTwoPrompts), 5));
}

// Its share of all KV, and of each layer what never leaves: units with the sink, of the window, and the newest.
TEST(DeviceBudget, IsKept) {
  Machine machine;
  const auto prefixes = machine.prefill({kTwoPrompts[0]});
  const DecodeResult whole = machine.decode("full", prefixes, 40),
                     part = machine.decode("full:device=0.2,block=16", prefixes, 40);
  const auto bytes = [](const DecodeResult& result, Tier tier) {
    return result.sequences[0].peak_kv_bytes[static_cast<int>(tier)];
  };
  const std::size_t page = machine.engine.kv().shape().slot_bytes() * kManyLayers, mass = 1024;
  EXPECT_LE(bytes(part, Tier::device), bytes(whole, Tier::device) / 5 + 6 * page + mass);
  EXPECT_GE(bytes(part, Tier::host), bytes(whole, Tier::device) * 3 / 4);
}

TEST(DeviceBudget, ReportsWhatChoicesLookUpAndWhatTheyMiss) {
  Machine machine;
  const auto prefixes = machine.prefill({kTwoPrompts[0]});
  const std::string spec = "quest:budget=160,device=0.4";
  const DecodeResult result = machine.decode(spec, prefixes, 12);
  std::uint64_t looked_up = 0, missed = 0;
  for (const TraceRecord& record : result.trace.records) {
    looked_up += record.cost.looked_up;
    if (std::string_view(record.name) == "restore kv") missed += record.cost.h2d;
  }
  EXPECT_EQ(result.idle.total.looked_up, looked_up);
  EXPECT_EQ(result.idle.total.missed, missed);
  EXPECT_GT(missed, 0u);
  // Each head names 9 pages and attends the newest: a layer looks up no less than that, nor more than both heads' own.
  const std::size_t page = machine.engine.kv().shape().slot_bytes(), layer_steps = std::size_t{12} * kManyLayers;
  EXPECT_GE(looked_up, layer_steps * 10 * page);
  EXPECT_LE(looked_up, layer_steps * 19 * page);
  EXPECT_LT(missed, looked_up / 2) << "steps choose alike";
}

TEST(DeviceBudget, RefusesWhatCannotWorkAndSaysWhatDoes) {
  Machine machine(4);
  const auto prefixes = machine.prefill({kTwoPrompts[0]});
  for (const std::string start : {"full:evict=lru,block=16,device=", "full:device=", "quest:budget=64,device="}) {
    try {
      machine.decode(start + "0.1", prefixes, 5);
      ADD_FAILURE() << start;
    } catch (const InputError& error) {
      const std::string text = error.what(), least = "at least device=";
      EXPECT_THAT(text, HasSubstr("of this model's 4 layers must be on the device together"));
      EXPECT_EQ(text.find("look_ahead") == std::string::npos, start.starts_with("quest"));
      machine.decode(start + text.substr(text.find(least) + least.size(), 5), prefixes, 40);
    }
  }
}

/// Whether two prompts that fill their pages together are decoded; if not, it must be refused before it begins.
bool decodes_on(std::size_t pages, const Prompts& prompts) {
  Machine machine(kManyLayers, pages);
  std::vector<std::unique_ptr<Prefix>> prefixes;
  try {
    prefixes = machine.prefill(prompts);
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--device-kv"));
    return false;
  }
  Logits logits;
  try {
    machine.decode("full:device=0.3,block=16", prefixes, 40, &logits);
  } catch (const InputError& error) {
    EXPECT_TRUE(logits.empty()) << pages << " pages, after " << logits.size() << " steps: " << error.what();
    return false;
  }
  return true;
}

// A fork cannot give up slots of its prefix. Where they would leave it no room, the prompt leaves the device as well.
TEST(DeviceBudget, MoreDeviceMemoryIsNeverWorse) {
  const Prompts one = {random_prompt(500, 1)};
  bool before = false;
  for (std::size_t pages = 8; pages <= 72; pages += 8) {
    const bool now = decodes_on(pages, one);
    EXPECT_TRUE(now || !before) << pages;
    before = now;
  }
  EXPECT_TRUE(before);
}

TEST(DeviceBudget, HasRoomForAPageOfEverySequence) {
  const Prompts together = {random_prompt(251, 1), random_prompt(251, 2), random_prompt(251, 3)};
  int decoded = 0;
  for (std::size_t pages = 24; pages <= 60; pages += 5) decoded += decodes_on(pages, together) ? 1 : 0;
  EXPECT_GT(decoded, 0);
}

// The cache gives up its own before a prompt is refused, and a prompt that a folder has is loaded as far as it fits.
TEST(PromptBeyondTheDevice, MeetsThePrefixCache) {
  const Prompts prompts = {random_prompt(500, 1), random_prompt(500, 2), random_prompt(900, 3)};
  const TemporaryFolder folder;
  Machine plain;
  std::vector<Logits> expected;
  for (const auto& prompt : prompts) expected.push_back(plain.logits("full", plain.prefill({prompt}), 3));
  for (const bool in_folder : {false, true}) {
    for (const std::size_t pages : {400, 60, 40}) {
      EngineOptions options = Machine::options(kManyLayers, pages);
      options.prefix_cache.bytes = std::size_t{1} << 30;
      if (in_folder) options.prefix_cache.folder = folder.path();
      Machine machine(kManyLayers, options);
      for (const std::size_t i : {0, 1, 2, 0}) {
        const auto prefixes = machine.prefill({prompts[i]});
        expect_the_same(machine.logits("full:device=0.3,block=16", prefixes, 3), expected[i]);
        machine.engine.release(*prefixes[0]);
      }
    }
  }
}

TEST(PromptBeyondTheDevice, IsAsBeforeAfterAFailedAppend) {
  EngineOptions options = Machine::options(kManyLayers, 50);
  options.kv.host_bytes = 72 * KvShape{kManyLayers, 2, 16}.slot_bytes() * kManyLayers;
  Machine small(kManyLayers, options);
  const auto prefixes = small.prefill({random_prompt(1100, 1)});
  const Logits before = small.logits("full:device=0.3,block=16", prefixes, 6);
  EXPECT_THAT([&] { small.engine.append(*prefixes[0], random_prompt(300, 2)); },
              ThrowsMessage<InputError>(HasSubstr("--host-kv")));
  for (int forks = 0; forks < 2; ++forks)
    expect_the_same(small.logits("full:device=0.3,block=16", prefixes, 6), before);
}

// The prompt's KV leaves the device layer by layer while it is prefilled, and comes back for the next chunk.
TEST(PromptBeyondTheDevice, IsDecodedBitForBit) {
  const std::vector<std::int32_t> prompt = random_prompt(1100, 1), more = random_prompt(150, 2);  // 69 pages a layer
  Machine large, small(kManyLayers, 50);
  const auto whole = large.prefill({prompt}), apart = small.prefill({prompt});
  EXPECT_LE(small.engine.kv().bytes(apart[0]->sequence, Tier::device),
            2 * kManyLayers * small.engine.kv().shape().slot_bytes());
  const Logits expected = large.logits("full", whole, 6);
  for (int forks = 0; forks < 2; ++forks) expect_the_same(small.logits("full:device=0.3,block=16", apart, 6), expected);
  EXPECT_THAT([&] { small.decode("full", apart, 6); }, ThrowsMessage<InputError>(HasSubstr("raise --device-kv")));
  large.engine.append(*whole[0], more);
  small.engine.append(*apart[0], more);
  expect_the_same(small.logits("full:device=0.3,block=16,evict=lru", apart, 6), large.logits("full", whole, 6));
  small.engine.release(*apart[0]);
  EXPECT_EQ(small.engine.kv().bytes_in_use(Tier::device), 0u);
  EXPECT_EQ(small.engine.kv().bytes_in_use(Tier::host), 0u);
}

TEST(PromptBeyondTheDevice, IsDecodedByMethodsThatChoose) {
  const std::vector<std::int32_t> prompt = random_prompt(1100, 1);
  Machine large, small(kManyLayers, 50);
  const auto whole = large.prefill({prompt}), apart = small.prefill({prompt});
  expect_the_same(small.logits("quest:budget=160,device=0.3", apart, 6), large.logits("quest:budget=160", whole, 6));
  expect_the_same(small.logits("tova:budget=96,device=0.3", apart, 6), large.logits("tova:budget=96", whole, 6));
}

TEST(PromptBeyondTheDevice, IsRefusedWhereNotEvenTwoLayersFit) {
  Machine small(kManyLayers, 15);
  EXPECT_THAT([&] { small.prefill({random_prompt(1100, 1)}); },
              ThrowsMessage<InputError>(HasSubstr("to be prefilled layer by layer")));
}

}  // namespace
}  // namespace tandem::testing
