// LongBench's files (Bai et al. 2023, arXiv 2308.14508), read as upstream publishes them:
//   config/dataset2prompt.json, config/dataset2maxlen.json     prompts and tokens to generate
//   data/<data set>.jsonl, data/<data set>_e.jsonl             samples; _e: LongBench-E's
// in a folder, or the .jsonl beside config/. A line has "input", "context", "answers", "length" (words, of Chinese
// characters) and "all_classes" (a list or null); its other fields are not looked at.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "eval/scoring/longbench.h"

namespace tandem::eval {

struct LongBenchRecord {
  std::string input, context;
  std::vector<std::string> answers, all_classes;
  std::int64_t length = 0;
};

/// One file and what upstream's configuration says of its data set.
struct LongBenchFile {
  const LongBenchDataset* dataset = nullptr;
  std::vector<LongBenchRecord> records;
  std::vector<std::uint32_t> documents;  // of each record its context's number: number_documents()
  std::string prompt;                    // with {context} and {input}
  std::uint32_t max_new_tokens = 0;
  std::uint64_t hash = 0;  // of the file and these two
};

/// A task's name without "_e".
std::string_view longbench_dataset_of(std::string_view task);

/// The lines of one file; `file` is for error sentences, which name the line and the field. Empty lines are skipped.
std::vector<LongBenchRecord> parse_longbench(std::string_view text, const std::string& file);

/// A prompt with a record's fields in the place of their names in braces; "{{" and "}}" are braces. InputError for
/// other names.
std::string longbench_prompt(std::string_view prompt, const LongBenchRecord& record);

/// The files of these tasks ("qasper", "qasper_e"), and no other is opened; none given: all that are there, in
/// upstream's order, those of LongBench-E only where there is nothing else. InputError, naming file, line and field.
std::map<std::string, LongBenchFile> read_longbench(const std::filesystem::path& folder,
                                                    std::vector<std::string>& tasks);

/// The .jsonl files of a folder that are not read where no tasks are given: of no data set, or LongBench-E's beside
/// others.
std::vector<std::filesystem::path> unread_longbench(const std::filesystem::path& folder);

}  // namespace tandem::eval
