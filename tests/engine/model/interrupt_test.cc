// Long work on files and texts ends when the user asks to stop. Each case in a process of its own: the wish stays.
#include "engine/common/interrupt.h"

#include <functional>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <thread>
#include <unistd.h>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "engine/common/paths.h"
#include "engine/common/read_file.h"
#include "engine/model/safetensors.h"
#include "engine/model/sentencepiece_tokenizer.h"
#include "engine/model/tokenizer.h"
#include "engine/model/utf8.h"
#include "engine/model/word_splitter.h"
#include "tests/engine/model/model_folder.h"
#include "tests/golden/golden.h"

namespace tandem::testing {
namespace {

/// Whether `work`, which ends by itself, ends with Interrupted once the user asked to stop.
void expect_stops(const char* what, const std::function<void()>& work) {
  EXPECT_NO_THROW(work()) << what;
  const auto stopped = [&work] {
    interrupt();
    try {
      work();
    } catch (const Interrupted&) {
      _exit(42);
    }
    _exit(0);
  };
  EXPECT_EXIT(stopped(), ::testing::ExitedWithCode(42), "") << what;
}

TEST(Interrupt, EndsLongWorkOnFilesAndTexts) {
  const TemporaryFolder folder;
  const std::string large(std::size_t{9} << 20, ' ');  // small files and texts are read to their end
  write_bytes(folder / "file", large);
  expect_stops("reading", [&] { read_file(folder / "file"); });
  expect_stops("JSON", [&] { parse_json("[1, 2" + large + "]", "x"); });
  expect_stops("repairing", [] { repair_utf8("text"); });
  expect_stops("checking", [] { valid_utf8_bytes("text"); });
  expect_stops("composing", [] { compose_utf8("text"); });
  const std::vector<std::byte> weights((std::size_t{64} << 20) + 8);  // a hash looks between pieces of 64 MiB
  expect_stops("hashing", [&] { content_hash(weights); });
  expect_stops("merges", [] {
    sentencepiece_of({{"<unk>", 0}, {"a", 1}, {"aa", 2}}, {{"a", "a"}}, "<unk>", /*prefix_space=*/false, "file");
  });
  const WordSplitter splitter({kGpt2Words}, "file");
  expect_stops("splitting", [&] { splitter.split("two words", [](std::string_view) { return true; }); });
  const auto tokenizers = golden_folder() / "tokenizers";
  for (const auto& path : {tokenizers / "small_llama3", tokenizers / "small_qwen2", data_path("models/tiny")}) {
    const auto tokenizer = load_tokenizer(path);
    expect_stops(path.c_str(), [&] { tokenizer->encode("two words", true); });
  }
}

TEST(Interrupt, LeavesAThreadThatKeepsItsWorkAlone) {
  const TemporaryFolder folder;
  write_bytes(folder / "samples", std::string(std::size_t{9} << 20, ' '));
  const auto stops = [&] {
    try {
      read_file(folder / "samples");
    } catch (const Interrupted&) {
      return true;
    }
    return false;
  };
  const auto kept = [&] {
    interrupt();
    bool whole = false, stopped_elsewhere = false;
    {
      const KeepingWork keeping;
      { const KeepingWork within; }
      whole = !stops();
      std::thread([&] { stopped_elsewhere = stops(); }).join();
    }
    _exit(whole && stopped_elsewhere && stops() ? 42 : 0);
  };
  EXPECT_EXIT(kept(), ::testing::ExitedWithCode(42), "");
}

}  // namespace
}  // namespace tandem::testing
