// full:device=SHARE: the same bits as with all KV on the device, within its budget, for every policy; through appended
// turns, forks, and prompts that the device cannot hold.
#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>

#include "engine/common/error.h"
#include "engine/mechanisms/device_budget/device_budget.h"
#include "engine/runtime/decode_session.h"
#include "methods/registry.h"
#include "tests/engine/kernels/kernel_test.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Logits = std::vector<std::vector<float>>;

constexpr std::uint32_t kLayers = 20;
const std::vector<std::vector<std::int32_t>> kPrompts = {random_prompt(1100, 1), random_prompt(460, 2)};

Logits decode(Bench& bench, const std::string& spec, std::uint32_t steps = 20, DecodeResult* result = nullptr) {
  Logits logits;
  DecodeResult own = bench.decode(*make_method(spec), kPrompts, steps, {.logits = &logits});
  if (result != nullptr) *result = std::move(own);
  return logits;
}

void expect_same_bits(const Logits& found, const Logits& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t step = 0; step < found.size(); ++step)
    ASSERT_TRUE(same_bits(found[step], expected[step])) << "other bits in step " << step;
}

class DeviceBudgets : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Policies, DeviceBudgets,
                         ::testing::Values("full:device=0.1,evict=fixed,block=16", "full:device=0.1,evict=lru,block=16",
                                           "full:device=0.1,block=16", "full:device=0.3,block=256",
                                           "full:device=0.1,look_ahead=0", "full:device=0.5,look_ahead=3"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace_if(
                               name, [](unsigned char c) { return !std::isalnum(c); }, '_');
                           return name;
                         });

TEST_P(DeviceBudgets, GiveFullsBits) {
  Bench bench(tiny_model(true, kLayers));
  const Logits expected = decode(bench, "full");
  DecodeResult result;
  expect_same_bits(decode(bench, GetParam(), 20, &result), expected);
}

// A decode that goes on, two turns, and a sequence that joins them late.
TEST_P(DeviceBudgets, GiveThemInSessions) {
  const auto run = [&](const std::string& spec) {
    Bench bench(tiny_model(true, kLayers));
    Logits logits;
    std::vector<std::unique_ptr<Prefix>> prefixes;
    std::vector<DecodeRequest> requests;
    for (const auto& prompt : kPrompts) {
      prefixes.push_back(bench.engine.prefill(prompt));
      requests.push_back({prefixes.back().get(), 7});
    }
    const auto method = make_method(spec);
    const auto session = bench.engine.open_session(*method, requests);
    for (const auto& prefix : prefixes) bench.engine.release(*prefix);
    session->decode({.logits = &logits});
    session->decode({.logits = &logits});
    session->append(0, random_prompt(90, 5), 6);
    session->append(1, random_prompt(300, 6), 19);
    session->decode({.logits = &logits});
    session->append(0, random_prompt(33, 7), 3);
    session->decode({.logits = &logits});
    return logits;
  };
  expect_same_bits(run(GetParam()), run("full"));
}

TEST_P(DeviceBudgets, GiveThemWithRealThreads) {
  Bench on_sim(tiny_model(true, kLayers)), bench(tiny_model(true, kLayers), make_emu_device({.host_worker_threads = 1}));
  expect_same_bits(decode(bench, GetParam(), 5), decode(on_sim, "full", 5));
}

// Its share of all KV, and of each layer what never leaves: a unit with the sink, one or two of the window, the newest.
TEST(DeviceBudget, IsKept) {
  Bench bench(tiny_model(true, kLayers));
  DecodeResult all, some;
  decode(bench, "full", 20, &all);
  decode(bench, "full:device=0.2,block=16", 20, &some);
  for (std::size_t i = 0; i < kPrompts.size(); ++i) {
    const std::size_t page = bench.engine.kv().shape().slot_bytes() * kLayers;
    const auto device = [&](const DecodeResult& r) { return r.sequences[i].peak_kv_bytes[0]; };
    EXPECT_GE(device(all), blocks_for(static_cast<std::uint32_t>(kPrompts[i].size())) * page);
    EXPECT_LE(device(some), device(all) / 5 + 5 * page + 4096) << "of a budget for the batch";
    EXPECT_GE(some.sequences[i].peak_kv_bytes[1], device(all) / 2) << "in host memory";
  }
}

TEST(DeviceBudget, RefusesWhatCannotWork) {
  Bench bench(tiny_model(true, 4));
  EXPECT_THAT([&] { decode(bench, "full:device=0.1"); },
              ThrowsMessage<InputError>(HasSubstr("2 of this model's 4 layers must be on the device together")));
}

// The prompt's KV leaves the device layer by layer while it is prefilled, and comes back for the next chunk.
class PromptsBeyondTheDevice : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kShort = 400;
  explicit PromptsBeyondTheDevice() : large(options(1 << 14)), small(options(900)) {}

  static EngineOptions options(std::size_t slots) {
    EngineOptions engine;
    const KvShape shape{kLayers, 2, 16};
    engine.prefill_chunk = 128;
    engine.host_prompts = true;
    engine.kv = {.device_bytes = slots * shape.slot_bytes(), .host_bytes = (std::size_t{1} << 14) * shape.slot_bytes()};
    return engine;
  }
  struct Machine {
    explicit Machine(EngineOptions options)
        : model(tiny_model(true, kLayers)), device(sim()), pool(2), engine(model, *device, pool, std::move(options)) {}
    Logits decode(const std::string& spec, const Prefix& prefix) {
      Logits logits;
      const DecodeRequest request{&prefix, 6};
      engine.decode(*make_method(spec), std::span(&request, 1), {.logits = &logits});
      return logits;
    }
    Model model;
    std::unique_ptr<Device> device;
    ThreadPool pool;
    Engine engine;
  };
  Machine large, small;
};

TEST_F(PromptsBeyondTheDevice, AreDecodedBitForBit) {
  const std::vector<std::int32_t> prompt = random_prompt(1100, 1), more = random_prompt(150, 2);  // 69 pages a layer
  const auto whole = large.engine.prefill(prompt), apart = small.engine.prefill(prompt);
  EXPECT_LE(small.engine.kv().bytes(apart->sequence, Tier::device), 2 * kLayers * small.engine.kv().shape().slot_bytes());
  const Logits expected = large.decode("full", *whole);
  for (int forks = 0; forks < 2; ++forks)
    expect_same_bits(small.decode("full:device=0.3,block=16", *apart), expected);
  large.engine.append(*whole, more);
  small.engine.append(*apart, more);
  expect_same_bits(small.decode("full:device=0.3,block=16,evict=lru", *apart), large.decode("full", *whole));
  small.engine.release(*apart);
  EXPECT_EQ(small.engine.kv().bytes_in_use(Tier::device), 0u);
  EXPECT_EQ(small.engine.kv().bytes_in_use(Tier::host), 0u);
}

TEST_F(PromptsBeyondTheDevice, AreRefusedWhereAMethodWantsThemThere) {
  const auto apart = small.engine.prefill(random_prompt(1100, 1));
  EXPECT_THAT([&] { small.decode("full", *apart); }, ThrowsMessage<InputError>(HasSubstr("raise --device-kv")));
  // Not even two layers of this one fit.
  EXPECT_THAT([&] { small.engine.prefill(random_prompt(4000, 1)); },
              ThrowsMessage<InputError>(HasSubstr("to be prefilled layer by layer")));
}

}  // namespace
}  // namespace tandem::testing
