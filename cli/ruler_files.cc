#include "cli/ruler_files.h"

#include "cli/parse.h"

namespace tandem::cli {

void add_ruler_files(Command command, eval::RulerFiles& files) {
  command.option("--ruler-essays", files.essays,
                 "Text around the needles of the tasks that upstream hides in essays: {\"text\": ...} in a .json, or "
                 "plain text (default: invented prose)");
  command
      .option("--ruler-qa", files.questions,
              "Questions and documents: a SQuAD file for qa_1, a HotpotQA file for qa_2, or both, each with its own "
              "--ruler-qa (default: questions on made-up facts)")
      .repeatable();
}

std::string ruler_files_arguments(const eval::RulerFiles& files) {
  std::string text;
  if (!files.essays.empty()) text += " --ruler-essays " + shell_word(files.essays);
  for (const std::string& file : files.questions) text += " --ruler-qa " + shell_word(file);
  return text;
}

}  // namespace tandem::cli
