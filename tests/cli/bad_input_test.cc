// Bad input of every kind through the program: exit code 2, one sentence on stderr that names file, field and value,
// nothing on stdout, and no run folder left behind.
#include <filesystem>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/json.h"
#include "engine/common/paths.h"
#include "tests/cli/program_fixture.h"
#include "tests/engine/model/model_folder.h"

namespace tandem::testing {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class DamagedModel : public ProgramTest {
 protected:
  DamagedModel() {
    for (const auto& entry : fs::directory_iterator(data_path("models/seed"))) {
      if (entry.is_regular_file()) fs::copy_file(entry.path(), root_.path() / entry.path().filename());
    }
  }

  void expect_all_refuse(const std::vector<std::string>& says) {
    const std::string run = (root_.path() / "run").string(), model = root_.path().string();
    for (const std::string& command : {"info --model " + model, "generate --prompt hello --model " + model,
                                       "compare --quiet --model " + model + " --out " + run}) {
      expect_refused(command, says);
    }
    EXPECT_FALSE(fs::exists(run));
  }

  void edit_json(const char* file, const std::function<void(Json&)>& edit) {
    Json json = parse_json(read_bytes(root_.path() / file), "JSON");
    edit(json);
    write_bytes(root_.path() / file, json_text(json));
  }

  void edit_weights(const std::function<void(Json& header)>& edit) {
    const fs::path file = root_.path() / "model.safetensors";
    auto [header, body] = split_safetensors(read_bytes(file));
    edit(header);
    write_bytes(file, safetensors_bytes(json_text(header), body));
  }
};

TEST_F(DamagedModel, TruncatedWeights) {
  fs::resize_file(root_.path() / "model.safetensors", 100000);
  expect_all_refuse({"model.safetensors", "model.embed_tokens.weight", "cut off or damaged"});
}

TEST_F(DamagedModel, HostileHeaderLength) {
  const fs::path file = root_.path() / "model.safetensors";
  write_bytes(file, std::string(7, '\xff') + "\x7f" + read_bytes(file).substr(8));
  expect_all_refuse({"model.safetensors", "header claims 9223372036854775807 bytes"});
}

TEST_F(DamagedModel, HostileOffsets) {
  edit_weights([](Json& header) { header["model.norm.weight"]["data_offsets"] = {512, 0}; });
  expect_all_refuse({"model.safetensors", "model.norm.weight", "512"});
}

TEST_F(DamagedModel, WrongShape) {
  edit_weights([](Json& header) { header["model.layers.0.mlp.up_proj.weight"]["shape"] = {256, 640}; });
  expect_all_refuse({"model.safetensors", "model.layers.0.mlp.up_proj.weight", "[256, 640]", "[640, 256]"});
}

TEST_F(DamagedModel, WrongDtype) {
  edit_weights([](Json& header) { header["model.layers.1.mlp.up_proj.weight"]["dtype"] = "I16"; });
  expect_all_refuse({"model.safetensors", "model.layers.1.mlp.up_proj.weight", "I16", "BF16"});
}

TEST_F(DamagedModel, MissingTensor) {
  edit_weights([](Json& header) {
    header["model.renamed"] = header["model.norm.weight"];
    header.erase("model.norm.weight");
  });
  expect_all_refuse({"model.safetensors", "'model.norm.weight' is missing"});
}

TEST_F(DamagedModel, BrokenConfig) {
  edit_json("config.json", [](Json& json) { json["hidden_size"] = -3; });
  expect_all_refuse({"config.json", "'hidden_size'", "-3"});
  write_bytes(root_.path() / "config.json", "{");
  expect_all_refuse({"config.json", "not a JSON object"});
  fs::remove(root_.path() / "config.json");
  expect_all_refuse({"config.json"});
}

TEST_F(DamagedModel, BrokenTokenizer) {
  write_bytes(root_.path() / "tokenizer.model", "broken");
  expect_all_refuse({"tokenizer.model", "not a SentencePiece model"});
  fs::remove(root_.path() / "tokenizer.model");
  expect_all_refuse({"tokenizer.model"});
}

TEST(BadInput, Prompts) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "prompt.txt").string();
  std::string text;
  for (int i = 0; i < 20000; ++i) text += "several words ";
  write_bytes(file, text);
  expect_refused("generate --prompt-file " + file, {"32768 positions", "max_position_embeddings"});
  write_bytes(file, "");
  expect_refused("generate --prompt-file " + file, {file, "is empty"});
  expect_refused("generate --prompt-file " + folder.path().string(), {folder.path().string(), "cannot be read"});
  expect_refused("generate --prompt-file /no/such/file", {"/no/such/file", "cannot be read"});
  expect_refused("generate --prompt a --prompt-file b", {"either --prompt or --prompt-file"});
  expect_refused("generate --chat --prompt hello", {"no chat template", "--chat-format", "llama-3.1"});
  expect_refused("generate --chat --chat-format lama-2 --prompt hello", {"'lama-2'", "Did you mean 'llama-2'?"});
  expect_refused("generate --prompt hello --system x", {"add --chat"});
  expect_refused("generate --chat --prompt-file " + file, {"--prompt-file"});
  expect_refused("generate --prompt hello --max-new 0", {"--max-new is 0"});
  for (const char* count : {"-1", "4294967296"})
    expect_refused(fmt::format("generate --prompt hello --top-k {}", count),
                   {"--top-k", count, "from 0 to 4294967295"});
  expect_refused("generate --prompt hello --seed -1", {"from 0 to 18446744073709551615"});
  expect_refused("generate --prompt hello --temperature -1", {"--temperature is -1"});
  expect_refused("generate --prompt hello --temperature 1 --top-p 0", {"--top-p is 0"});
  expect_refused("generate --prompt hello --temperature 1 --min-p 2", {"--min-p is 2"});
  expect_refused("generate --prompt hello --top-k 5", {"add --temperature"});
  expect_refused("generate --prompt hello --max-new 40000", {"40000", "32768 positions"});
}

TEST(BadInput, CompareLeavesNoFolderBehind) {
  struct Case {
    std::string arguments;
    std::vector<std::string> says;
  };
  const Case cases[] = {
      {"--methods full,hybrid-fixd", {"'hybrid-fixd'", "Did you mean 'hybrid-fixed'?"}},
      {"--methods full,hybrid-fixed:bugdet=0.1", {"'bugdet'", "Did you mean 'budget'?"}},
      {"--methods hybrid-fixed:budget=1.5", {"'budget'", "'1.5'", "at most 1"}},
      {"--methods hybrid-fixed:budget=0", {"'budget'", "'0'", "above 0"}},
      {"--methods hybrid-fixed:budget=abc", {"'budget'", "'abc'"}},
      {"--methods streaming:window=-1", {"'window'", "'-1'"}},
      {"--methods full,full", {"'full' is listed twice"}},
      {"--tasks singel", {"'singel'", "Did you mean 'single'?"}},
      {"--lengths 4X", {"--lengths", "'4X'"}},
      {"--lengths 1K,64K", {"--lengths", "65536", "32768 positions"}},
      {"--lengths 20", {"20 is too short", "tokens are enough"}},
      {"--samples 0", {"--samples is 0"}},
      {"--ruler-data /no/such/folder", {"--ruler-data", "'/no/such/folder'"}},
      {"--ruler-essays /no/such/file", {"--ruler-essays", "/no/such/file cannot be read"}},
      {"--ruler-essays a.txt --tasks vt", {"--ruler-essays", "niah_single_2"}},
      {"--ruler-qa /no/such/file --tasks qa", {"--ruler-qa", "/no/such/file cannot be read"}},
      {"--ruler-qa /proc/self --tasks qa", {"--ruler-qa", "not a regular file"}},
      {"--ruler-qa a.json b.json", {"'b.json' is one word too many"}},
      {"--ruler-qa a.json --ruler-data b", {"--ruler-data", "--ruler-qa"}},
      {"--as llama-3.1-9b", {"'llama-3.1-9b'", "Did you mean 'llama-3.1-8b'?"}},
      {"--as llama-2-7b --context 8K", {"--context 8192", "4096 positions"}},
      {"--as qwen3-32b --hw hgca-a6000", {"qwen3-32b: the weights take 65.5 GB", "48 GB"}},
      {"--as llama-3.1-8b --context 1K,2K", {"--context is '1K,2K'", "one length"}},
      {"--as llama-3.1-8b --device emu", {"--as", "--device sim"}},
      {"--as llama-3.1-8b --workload /dev/zero", {"--workload", "'/dev/zero' cannot be read (not a regular file)"}},
      {"--methods full,scoutattention:recall=/dev/zero", {"'recall'", "'/dev/zero'", "nor a file that can be read"}},
      {"--as llama-3.1-8b --workload publishd", {"--workload", "'publishd' cannot be read", "recorded, published"}},
      {"--context 8K", {"--context and --workload belong to --as"}},
      {"--samples 3.5", {"--samples", "3.5"}},
      {"--batch 1000", {"--batch is 1000"}},
      {"--hw /etc/passwd", {"/etc/passwd: not valid JSON from byte 1 of"}},
      {"--as llama-3.1-8b --workload /etc/passwd", {"/etc/passwd: not valid JSON from byte 1 of"}},
      {"--hw h20", {"'h20'", "Did you mean 'h200'?"}},
      {"--device simm", {"'simm'", "Did you mean 'sim'?"}},
      {"--threads 100000", {"--threads is 100000"}},
      {"--weights disk", {"--weights is 'disk'", "auto, copy or map"}},
      {"--prefill-chunk 0", {"--prefill-chunk is 0"}},
      {"--device-kv 1M", {"--device-kv is 1048576 bytes", "lower --batch or --lengths"}},
      {"--device-kv lots", {"--device-kv", "'lots'"}},
      {"--methods hybrid-fixed --host-kv 64K --samples 1", {"host KV store is full", "65536", "--host-kv"}},
      {"--model synthetic:qwen3-9b", {"'qwen3-9b'", "There are llama-2-7b"}},
      {"--methods full,hgca --head-errors", {"--head-errors", "no method here is fluxion"}},
      {"--device emu --hw h200", {"--hw is 'h200'", "--device emu"}},
      {"--seed 18446744073709551616", {"--seed", "not a whole number"}},
      {"--ruler-data b --seed 42", {"--seed", "--ruler-data"}},
      {"--resume", {"There is no folder"}},
      {"--resume --force", {"--force", "--resume"}},
  };
  const TemporaryFolder folder;
  const std::string run = (folder.path() / "run").string();
  for (const Case& c : cases) {
    expect_refused("compare --quiet --out " + run + " " + c.arguments, c.says);
    EXPECT_FALSE(fs::exists(run)) << c.arguments;
  }
}

TEST(BadInput, AnEmptyValueIsNotTheDefault) {
  for (const char* command :
       {"compare --ruler-data ''", "compare --ruler-qa ''", "compare --methods ''", "compare --out ''",
        "info --model ''", "eval perplexity --text ''", "generate --prompt hi --system ''", "profile heads --out ''",
        "fluxion collect --out ''", "bench decode --out ''", "reproduce scout-fig11 --out ''"})
    expect_refused(command, {" is empty: give a value, or leave it away"});
}

TEST(BadInput, AnOptionIsNoValueOfTheOneBefore) {
  for (const char* command : {"compare --out --force", "profile heads --text-file --quiet", "info --model --help"})
    expect_refused(command, {" has no value: '--", "' is an option of its own."});
  EXPECT_EQ(cli::run("generate --max-new 1 --prompt --not-one").code, 0);
}

TEST(BadInput, AFailedReplacementLeavesTheEarlierRun) {
  const TemporaryFolder folder;
  const std::string run = (folder.path() / "run").string();
  const std::string command = "compare --quiet --no-plot --tasks niah_single_1 --lengths 512 --samples 1 --out " + run;
  ASSERT_EQ(cli::run(command).code, 0);
  const std::string before = read_bytes(run + "/samples.jsonl");
  EXPECT_EQ(cli::run(command + " --force --methods hybrid-fixed --host-kv 64K").code, 2);  // found by the first method
  EXPECT_EQ(read_bytes(run + "/samples.jsonl"), before);
  EXPECT_EQ(cli::run(command + " --force --device-kv 200G").code, 3);  // more than the simulated device has
  EXPECT_EQ(read_bytes(run + "/samples.jsonl"), before);
  EXPECT_EQ(cli::run(command + " --force --seed 7").code, 0);
  EXPECT_NE(read_bytes(run + "/samples.jsonl"), before);
}

TEST_F(DamagedModel, NotANumberInTheWeightsEndsTheRun) {
  const fs::path file = root_.path() / "model.safetensors";
  auto [header, body] = split_safetensors(read_bytes(file));
  const auto offsets = header["model.layers.0.self_attn.k_proj.weight"]["data_offsets"];
  for (std::size_t at = offsets[0]; at < offsets[1]; at += 2) body.replace(at, 2, "\xc0\x7f");  // bf16 NaN
  write_bytes(file, safetensors_bytes(json_text(header), body));
  for (const char* method : {"full", "hybrid-fixed:sinks=16,window=32"}) {
    const cli::Outcome outcome = cli::run("generate --model " + root_.path().string() + " --method " + method +
                                              " --prompt '" + std::string(800, 'x') + "'",
                                          cli::kOnlyErrors);
    EXPECT_EQ(outcome.code, 2) << outcome.text;
    EXPECT_THAT(outcome.text, ::testing::AllOf(HasSubstr("model.safetensors"), HasSubstr("layers.0.self_attn.k_proj"),
                                               HasSubstr("NaN or infinity")));
  }
}

TEST(BadInput, OutputThatCannotBeWritten) {
  const cli::Outcome outcome = cli::run("generate --prompt hi --max-new 2", "2>&1 >/dev/full");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.text, HasSubstr("No space left on device"));
  EXPECT_EQ(cli::run("generate --prompt hi --max-new 2", ">/dev/full 2>&1").code, 3);
}

TEST(BadInput, FoldersThatCannotBeWritten) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "file").string();
  write_bytes(file, "x");
  expect_refused("compare --quiet --out " + file, {"'" + file + "' is a file"});
  expect_refused("compare --quiet --out " + file + "/run", {file + "/run", "is a file"});
  expect_refused("compare --quiet --out /proc/run", {"/proc/run", "cannot be made"});
  expect_refused("compare --quiet --force --out " + folder.path().string(), {"holds no run"});
  EXPECT_EQ(read_bytes(file), "x");
}

}  // namespace
}  // namespace tandem::testing
