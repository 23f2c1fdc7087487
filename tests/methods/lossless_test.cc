// The same bits wherever KV lies: full-offload and full-host give full's logits bit for bit on the simulated device,
// with every instruction set of this machine and every precision.
#include <gtest/gtest.h>

#include "engine/runtime/decode_session.h"
#include "methods/registry.h"
#include "tests/engine/kernels/kernel_test.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {
namespace {

using Prompts = std::vector<std::vector<std::int32_t>>;
using Logits = std::vector<std::vector<float>>;  // [step][rows * vocab]

struct Shape {
  std::uint32_t q_heads, kv_heads, head_dim, layers;
  std::uint32_t longest;  // context, tokens
};
// Groups and dimensions that the kernels treat differently; the first ones with contexts of several parts
// (host_parts.h).
constexpr Shape kShapes[] = {{4, 2, 16, 2, 2200},  {4, 1, 32, 2, 1200}, {8, 1, 64, 1, 1100}, {5, 5, 40, 1, 600},
                             {2, 1, 128, 1, 1100}, {14, 2, 64, 1, 600}, {20, 1, 96, 1, 600}};
constexpr std::uint32_t kMaxBatch = 3;

Model model_of(const Shape& shape) {
  Model model = tiny_model(shape.q_heads % 4 == 0, shape.layers);
  ModelConfig& c = model.config;
  c.q_heads = shape.q_heads;
  c.kv_heads = shape.kv_heads;
  c.head_dim = shape.head_dim;
  model.weights = random_weights(c, DType::f32, shape.head_dim);
  return model;
}

/// Around the ends of pages and parts, where the sides' shares of a context change, or anywhere.
Prompts random_prompts(Random& random, std::uint32_t longest) {
  constexpr std::uint32_t kEnds[] = {1, 16, 32, 512, 1024, 1536, 2048};
  Prompts prompts;
  const std::uint32_t batch = 1 + random.below(kMaxBatch);
  for (std::uint32_t i = 0; i < batch; ++i) {
    const std::uint32_t near = kEnds[random.below(std::size(kEnds))] + random.below(5);
    const std::uint32_t tokens = near > 2 && random.below(4) != 0 ? near - 2 : 1 + random.below(longest);
    prompts.push_back(random_prompt(std::min(tokens, longest), random.below(1000)));
  }
  return prompts;
}

/// An engine and prompts that are prefilled once; no column sums (Bench has them), which take longer than all else.
struct Prefilled {
  Prefilled(const Shape& shape, std::unique_ptr<Device> d, DType precision, const Prompts& prompts)
      : model(model_of(shape)), device(std::move(d)), pool(2), engine(model, *device, pool, options(precision)) {
    for (const auto& prompt : prompts) prefixes.push_back(engine.prefill(prompt));
  }
  ~Prefilled() {
    for (const auto& prefix : prefixes) engine.release(*prefix);
  }
  Prefilled(const Prefilled&) = delete;
  Prefilled& operator=(const Prefilled&) = delete;

  static EngineOptions options(DType precision) {
    EngineOptions engine;
    engine.precision = precision;
    engine.max_batch = kMaxBatch;
    engine.kv.device_bytes = engine.kv.host_bytes = std::size_t{64} << 20;
    return engine;
  }
  std::vector<DecodeRequest> requests(std::uint32_t steps) const {
    std::vector<DecodeRequest> all;
    for (const auto& prefix : prefixes) all.push_back({prefix.get(), steps});
    return all;
  }
  Logits decode(const std::string& spec, std::uint32_t steps) {
    Logits logits;
    engine.decode(*make_method(spec), requests(steps), {.logits = &logits});
    return logits;
  }

  Model model;
  std::unique_ptr<Device> device;
  ThreadPool pool;
  Engine engine;
  std::vector<std::unique_ptr<Prefix>> prefixes;
};

void expect_same_bits(const Logits& found, const Logits& expected, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (std::size_t step = 0; step < found.size(); ++step)
    ASSERT_TRUE(same_bits(found[step], expected[step])) << what << " parts at step " << step;
}

class LosslessTest : public IsaAndTypeTest {
 protected:
  /// Another one for each instruction set and type.
  static unsigned number() {
    return 3 * static_cast<unsigned>(std::get<0>(GetParam())) + static_cast<unsigned>(type());
  }
  static const Shape& shape_of(unsigned i) { return kShapes[(number() + i) % std::size(kShapes)]; }
  static std::string described(const std::string& spec, const Shape& shape, const Prompts& prompts) {
    std::string text = spec + " with heads of " + std::to_string(shape.head_dim) + " and prompts of";
    for (const auto& prompt : prompts) text += " " + std::to_string(prompt.size());
    return text;
  }
};
TANDEM_EACH_ISA_AND_TYPE(LosslessTest);

// Numbers of drawn shapes. A sanitizer takes 20 times as long, and bits do not depend on it.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr unsigned kDecoded[] = {0}, kInSessions[] = {1};
#else
constexpr unsigned kDecoded[] = {0, 2, 5}, kInSessions[] = {1, 4};
#endif

TEST_P(LosslessTest, LogitsAreFullsBitForBit) {
  Random random(number());
  for (const unsigned i : kDecoded) {
    const Shape& shape = shape_of(i);
    const Prompts prompts = random_prompts(random, shape.longest);
    Prefilled prefilled(shape, sim(), type(), prompts);
    const std::uint32_t steps = 18 + random.below(4);  // of every prompt a page fills up
    const Logits expected = prefilled.decode("full", steps);
    for (const std::string spec : {"full-offload", "full-host"})
      expect_same_bits(prefilled.decode(spec, steps), expected, described(spec, shape, prompts));
  }
}

// A decode that goes on, and a new prompt, whose tokens attend what lies on either side.
TEST_P(LosslessTest, SoAreThoseOfSessions) {
  Random random(number());
  for (const unsigned i : kInSessions) {
    const Shape& shape = shape_of(i);
    const Prompts prompts = random_prompts(random, shape.longest / 2);
    Prefilled prefilled(shape, sim(), type(), prompts);
    const auto turn = random_prompt(20 + random.below(60), random.below(1000));
    const auto run = [&](const std::string& spec) {
      Logits logits;
      const auto method = make_method(spec);
      const auto session = prefilled.engine.open_session(*method, prefilled.requests(9));
      session->decode({.logits = &logits});
      session->decode({.logits = &logits});
      for (std::size_t request = 0; request < prompts.size(); ++request) session->append(request, turn, 20);
      session->decode({.logits = &logits});
      session->append(0, turn, 5);
      session->decode({.logits = &logits});
      return logits;
    };
    const Logits expected = run("full");
    for (const std::string spec : {"full-offload", "full-host"})
      expect_same_bits(run(spec), expected, described(spec, shape, prompts));
  }
}

TEST_P(LosslessTest, SoAreThoseOfRealThreads) {
  const Shape& shape = kShapes[0];
  const Prompts prompts = {random_prompt(1100, 1), random_prompt(17, 2)};
  const Logits expected = Prefilled(shape, sim(), type(), prompts).decode("full", 4);
  Prefilled prefilled(shape, make_emu_device({.host_worker_threads = 2}), type(), prompts);
  for (const std::string spec : {"full", "full-offload:look_ahead=0", "full-host"})
    expect_same_bits(prefilled.decode(spec, 4), expected, described(spec, shape, prompts));
}

}  // namespace
}  // namespace tandem::testing
