// The files that RULER runs read: upstream's samples, essays, questions of SQuAD's and HotpotQA's format. What is
// accepted must give samples.
#include <filesystem>

#include "engine/model/tokenizer.h"
#include "eval/ruler_tasks/official.h"
#include "eval/ruler_tasks/texts.h"
#include "tests/eval/ruler_tasks/question_files.h"
#include "tests/fuzz/fuzz.h"
#include "tests/golden/golden.h"

namespace tandem::fuzz {
namespace {

using namespace eval;

constexpr const char* kLines =
    "{\"index\": 0, \"input\": \"One number is: 1234567. What is it?\", \"outputs\": [\"1234567\"], \"length\": 90}\n"
    "{\"index\": -1, \"input\": \"<|im_start|>user\\nb \\u00e9<|im_end|>\", \"outputs\": [\"y\", \"z\"],"
    " \"answer_prefix\": \" It is\"}\r\n\n"
    "{\"index\": 7, \"input\": \"<s>[INST] c [/INST]\", \"outputs\": [\"w\"]}";

std::uint32_t count(std::string_view text) {
  return static_cast<std::uint32_t>(text.size() / 3 + 1);
}

void use_samples(const Tokenizer& tokenizer, const fuzz::ScratchFolder& folder, const std::string& bytes) {
  folder.write("4096/vt.jsonl", bytes);
  const OfficialRuler files(folder.path());
  files.hash();
  static_cast<void>(files.chat_template());
  for (std::uint32_t i = 0; i < files.samples(); ++i)
    encode_official(tokenizer, files.sample("vt", 4096, i, count).prompt);
}

void use_essays(const std::string& bytes, const char* name) {
  RulerTexts texts;
  texts.essays = std::make_shared<const Essays>(parse_essays(bytes, name));
  make_ruler_sample("niah_multiquery", 2048, 1, 1, count, texts);
}

void use_questions(const std::string& bytes) {
  RulerTexts texts;
  const auto set = std::make_shared<const QuestionSet>(parse_questions(bytes, "q.json"));
  const bool squad = set->format == QuestionSet::Format::squad;
  (squad ? texts.squad : texts.hotpot) = set;
  make_ruler_sample(squad ? "qa_1" : "qa_2", 2048, 0, 1, count, texts);
}

}  // namespace

int fuzz_ruler_files(int argc, char** argv) {
  const auto tokenizer = load_tokenizer(testing::golden_folder() / "tokenizers" / "small_qwen2");
  const fuzz::ScratchFolder folder;
  std::filesystem::create_directory(folder.path() + "/4096");
  return fuzz::run(argc, argv,
                   {{"samples", {kLines}, [&](const std::string& input) { use_samples(*tokenizer, folder, input); }},
                    {"essays.json",
                     {"{\"text\": \"He met Mr. Fox.  \\\"Why?\\\" It\\u00a0was late.\"}"},
                     [](const std::string& input) { use_essays(input, "e.json"); }},
                    {"essays.txt",
                     {"One two. Three \u201cfour!\u201d Five\nsix."},
                     [](const std::string& input) { use_essays(input, "e.txt"); }},
                    {"questions", {kSquad, kHotpot}, use_questions}});
}

}  // namespace tandem::fuzz
