// Tokens per second of encoding, one thread. TANDEM_TEST_DATA/tokenizers adds the published tokenizers,
// TANDEM_BENCH_TEXT (a file) replaces the invented prose.
#include <benchmark/benchmark.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "engine/common/paths.h"
#include "engine/model/model.h"
#include "engine/model/tokenizer.h"
#include "eval/ruler_tasks/wording.h"

namespace {

using namespace tandem;

const std::string& text() {
  static const std::string text = [] {
    if (const char* file = std::getenv("TANDEM_BENCH_TEXT")) {
      std::ifstream in(file, std::ios::binary);
      return std::string{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    }
    std::string prose;
    eval::Random random(1);
    while (prose.size() < 1 << 20) prose += eval::random_prose(eval::ruler_wording(), random) + " ";
    return prose;
  }();
  return text;
}

void encode(benchmark::State& state, const std::filesystem::path& folder) {
  const auto tokenizer = load_tokenizer(folder);
  std::size_t tokens = 0;
  for (auto _ : state) {
    const auto ids = tokenizer->encode(text(), false);
    benchmark::DoNotOptimize(ids.data());
    tokens += ids.size();
  }
  state.counters["tokens/s"] = benchmark::Counter(static_cast<double>(tokens), benchmark::Counter::kIsRate);
  state.counters["bytes/token"] =
      static_cast<double>(text().size()) * static_cast<double>(state.iterations()) / static_cast<double>(tokens);
}

const int kRegistered = [] {
  const auto add = [](const std::string& name, const std::filesystem::path& folder) {
    if (!std::filesystem::exists(folder)) return;
    benchmark::RegisterBenchmark(("encode/" + name).c_str(), [folder](benchmark::State& s) {
      encode(s, folder);
    })->Unit(benchmark::kMillisecond);
  };
  add("embedded", data_path("models") / kEmbeddedModel);
  add("small_qwen2", source_folder() / "tests/golden/tokenizers/small_qwen2");
  if (const char* data = std::getenv("TANDEM_TEST_DATA")) {
    for (const char* name : {"llama-2", "llama-3", "qwen2"})
      add(name, std::filesystem::path(data) / "tokenizers" / name);
  }
  return 0;
}();

}  // namespace
