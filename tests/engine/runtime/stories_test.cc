// A small trained Llama, converted by scripts/convert_llama2c.py, continues as llama2.c does. The golden is what
// llama2.c (commit 350e04f) prints for: run stories260K.bin -t 0 -n 256 -i "Once upon a time"
#include <gtest/gtest.h>

#include "engine/common/paths.h"
#include "methods/registry.h"
#include "tests/engine/model/model_folder.h"
#include "tests/engine/runtime/tiny.h"
#include "tests/test_data.h"

namespace tandem::testing {
namespace {

TEST(Stories260K, ContinuesAsLlama2cDoes) {
  const std::filesystem::path data = test_data("models/stories260K");
  if (data.empty()) GTEST_SKIP() << missing_test_data("models/stories260K");
  const TemporaryFolder folder;
  const std::string script = (source_folder() / "scripts" / "convert_llama2c.py").string();
  const std::string command = "python3 '" + script + "' '" + (data / "stories260K.bin").string() + "' '" +
                              (data / "tok512.model").string() + "' '" + folder.path().string() + "'";
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  Bench bench(load_model(folder.path().string()));
  bench.model.config.stop_tokens.clear();
  const Tokenizer& tokenizer = *bench.model.tokenizer;
  const std::string start = "Once upon a time";
  const auto full = make_method("full");
  const DecodeResult result = bench.decode(*full, {tokenizer.encode(start, /*add_bos=*/true)}, 200);
  const std::string text = start + tokenizer.decode(result.sequences[0].tokens);
  const std::string golden = read_bytes(golden_folder() / "stories260K.txt");
  EXPECT_GT(text.size(), 450u);
  EXPECT_EQ(text, golden.substr(0, text.size()));
}

}  // namespace
}  // namespace tandem::testing
