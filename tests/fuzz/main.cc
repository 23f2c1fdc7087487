// fuzz READER [options of run()].
#include <fmt/core.h>
#include <string_view>
#include <utility>

#include "tests/fuzz/fuzz.h"

int main(int argc, char** argv) {
  using namespace tandem::fuzz;
  static constexpr std::pair<std::string_view, int (*)(int, char**)> kReaders[] = {
      {"config", fuzz_config},
      {"safetensors", fuzz_safetensors},
      {"tokenizer", fuzz_tokenizer},
      {"chat_templates", fuzz_chat_templates},
      {"method_files", fuzz_method_files},
      {"ruler_files", fuzz_ruler_files},
      {"question_sets", fuzz_question_sets},
      {"answers", fuzz_answers},
      {"run_folder", fuzz_run_folder},
      {"results", fuzz_results},
      {"probe_reports", fuzz_probe_reports}};
  for (const auto& [name, fuzz] : kReaders)
    if (argc > 1 && argv[1] == name) return fuzz(argc - 1, argv + 1);
  fmt::print(stderr, "fuzz: its first argument must be one of");
  for (const auto& [name, fuzz] : kReaders) fmt::print(stderr, " {}", name);
  fmt::print(stderr, "\n");
  return 2;
}
