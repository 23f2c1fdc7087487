// What a decode step of each method asks of a GPU, in calls, and of the control thread that makes them, in time: on the
// emulated GPU, which here counts kernels and copies and does none of them. Small models' steps take a GPU less than
// this; what a call takes CUDA itself comes on top (some 2 us for a kernel).
//
//   bench_launches [--context TOKENS] [--batch ROWS] [--layers N] [--steps N] [METHOD ...]
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "engine/common/error.h"
#include "engine/device/cuda_device.h"
#include "engine/runtime/engine.h"
#include "methods/registry.h"
#include "tests/engine/kernels/cuda_emulator/streams.h"

namespace tandem {
namespace {

struct Shape {
  std::uint32_t context = 32768, batch = 8, layers = 32, steps = 64;
};

/// As many KV heads as models have, since what is told of each head and row takes room in launches and time to list;
/// small ones, so that KV of long contexts fits.
Model model_of(const Shape& shape) {
  Model model;
  ModelConfig& c = model.config;
  c.architecture = "llama";
  c.layers = shape.layers;
  c.hidden = c.intermediate = 32;
  c.q_heads = c.kv_heads = 8;
  c.head_dim = 4;
  c.vocab = 64;
  c.max_positions = 2 * shape.context;
  c.rms_eps = 1e-6f;
  c.rope.theta = 10000;
  c.tied_embeddings = true;
  model.weights = random_weights(c, DType::bf16, 1);
  model.name = "launches";
  return model;
}

double thread_milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

struct Spent {
  double milliseconds = 0;
  cuda_emulator::Calls calls;
};

Spent decode(Engine& engine, const std::string& spec, const std::vector<std::unique_ptr<Prefix>>& prefixes,
             std::uint32_t steps) {
  std::vector<DecodeRequest> requests;
  requests.reserve(prefixes.size());
  for (const auto& prefix : prefixes) requests.push_back({prefix.get(), steps});
  const std::vector<std::vector<std::int32_t>> forced(prefixes.size(), std::vector<std::int32_t>(steps, 1));
  const auto method = make_method(spec);
  const cuda_emulator::Calls before = cuda_emulator::calls();
  const double begin = thread_milliseconds();
  engine.decode(*method, requests, {.forced = forced});
  const double end = thread_milliseconds();
  const cuda_emulator::Calls after = cuda_emulator::calls();
  return {end - begin,
          {after.kernels - before.kernels, after.copies - before.copies, after.marks - before.marks,
           after.waits - before.waits}};
}

void measure(const Shape& shape, const std::vector<std::string>& specs) {
  const Model model = model_of(shape);
  EngineOptions options;
  options.max_batch = shape.batch;
  keep_what_methods_need(options, specs, model);
  const std::size_t token_bytes =
      std::size_t{2} * model.config.kv_heads * model.config.head_dim * sizeof(float) * shape.layers;
  const std::size_t tokens = std::size_t{shape.batch} * (shape.context + 4096);
  options.kv.device_bytes = options.kv.host_bytes = tokens * token_bytes;
  const auto device = make_cuda_device({.host_worker_threads = 1});
  cuda_emulator::be_idle();
  ThreadPool pool(1);
  Engine engine(model, *device, pool, options);
  std::vector<std::unique_ptr<Prefix>> prefixes;
  prefixes.reserve(shape.batch);
  for (std::uint32_t row = 0; row < shape.batch; ++row)
    prefixes.push_back(engine.prefill(std::vector<std::int32_t>(shape.context, 1)));
  fmt::print("{} tokens x {} rows, {} layers; per step and layer\n{:<36} {:>9} {:>8} {:>7} {:>7} {:>7}\n",
             shape.context, shape.batch, shape.layers, "method", "thread us", "kernels", "copies", "marks", "waits");
  for (const std::string& spec : specs) {
    constexpr std::uint32_t kFew = 4;  // what the setup takes is in both
    constexpr int kRounds = 3;
    decode(engine, spec, prefixes, 2);
    std::vector<double> times;
    Spent few, many;
    for (int round = 0; round < kRounds; ++round) {
      few = decode(engine, spec, prefixes, kFew);
      many = decode(engine, spec, prefixes, kFew + shape.steps);
      times.push_back(many.milliseconds - few.milliseconds);
    }
    std::sort(times.begin(), times.end());
    const double each = std::size_t{shape.steps} * shape.layers;
    const auto calls = [&](std::uint64_t cuda_emulator::Calls::*what) {
      return static_cast<double>(many.calls.*what - few.calls.*what) / each;
    };
    fmt::print("{:<36} {:>9.1f} {:>8.1f} {:>7.1f} {:>7.1f} {:>7.1f}\n", spec, times[kRounds / 2] * 1e3 / each,
               calls(&cuda_emulator::Calls::kernels), calls(&cuda_emulator::Calls::copies),
               calls(&cuda_emulator::Calls::marks), calls(&cuda_emulator::Calls::waits));
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  using namespace tandem;
  Shape shape;
  std::vector<std::string> specs;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto number = [&] { return static_cast<std::uint32_t>(std::stoul(++i < argc ? argv[i] : "")); };
    try {
      if (argument == "--context") {
        shape.context = number();
      } else if (argument == "--batch") {
        shape.batch = number();
      } else if (argument == "--layers") {
        shape.layers = number();
      } else if (argument == "--steps") {
        shape.steps = number();
      } else {
        specs.push_back(argument);
      }
    } catch (const std::logic_error&) {
      fmt::print(stderr, "bench_launches: {} wants a number.\n", argument);
      return 2;
    }
  }
  if (specs.empty()) specs = {"full", "full-offload", "streaming", "quest:budget=1024", "tova:budget=1024"};
  try {
    measure(shape, specs);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_launches: {}\n", error.what());
    return 1;
  }
  return 0;
}
