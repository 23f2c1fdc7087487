// Datasets of published files, a file for each task: their options, what their classes have in common, and the table of
// their own figures. eval/run/prompt_dataset.h is the plainest of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fmt/core.h>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/model/chat.h"
#include "engine/model/model.h"
#include "eval/ruler_tasks/random.h"
#include "eval/run/dataset_command.h"

namespace tandem::eval {

/// The choice of data, tasks and samples of a run.
struct FileChoice {
  std::string data;                // --data
  std::vector<std::string> tasks;  // none: all that are there
  std::uint32_t samples = 0;       // of each task, its first ones; 0: all
  std::uint32_t max_length = 0;    // tokens, where a dataset cuts prompts or documents; 0: its default
  std::optional<ChatWriter> template_of = {};
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};  // of what reading takes long for
};

/// The options --tasks and --samples and, where there is help for it, --max-length, and the dataset behind them.
struct FileRules {
  const char* tasks;  // help of the option
  const char* samples = "First samples of each task [all]";
  const char* max_length = nullptr;
  const char* reading = "";                                 // of the progress line: "reading documents"
  std::function<void(const std::string& task)> check_task;  // InputError for a name that no task has
  std::function<std::vector<std::filesystem::path>(const std::string& data)> unread = {};
  std::function<std::unique_ptr<Dataset>(const FileChoice& choice, const Model& model)> open;
};

class FileCommand : public DatasetCommand {
 public:
  explicit FileCommand(FileRules rules) : rules_(std::move(rules)) { chat.emplace(); }

  std::vector<DatasetOption> options() override;
  void check(const DatasetHost& host) override;
  std::unique_ptr<Dataset> open(const DatasetSetting& with) override;
  std::vector<std::filesystem::path> unread() const override;
  bool chose_tasks() const override { return !tasks_.empty(); }

 private:
  const FileRules rules_;
  std::string tasks_, max_length_;
  std::optional<std::uint32_t> samples_;  // none: all
  FileChoice choice_;
};

inline std::unique_ptr<DatasetCommand> file_command(FileRules rules) {
  return std::make_unique<FileCommand>(std::move(rules));
}

/// FileRules::open of a class.
template <class Opened>
std::unique_ptr<Dataset> open_dataset(const FileChoice& choice, const Model& model) {
  return std::make_unique<Opened>(choice, model);
}

/// Figures of a task in per cent.
struct FigureRow {
  std::vector<std::string> names;  // the leading cells
  std::string task, key;           // in the JSON {"<task>": {"<key>": 41.2}}; no key: {"<task>": 41.2}; no task: none
  std::map<std::string, double> figures;  // by the method's label; nothing of a method that has none
};

struct FigureTable {
  std::string title;
  std::vector<std::string> head;  // of the leading cells
  std::vector<FigureRow> rows;
  std::vector<std::string> notes;  // paragraphs below
  bool lists_all = true;           // whether the JSON names methods without a figure

  std::string text(const Summary& summary, bool markdown) const;  // a column per method
  /// {"protocol_id": ..., "methods": {<label>: <as FigureRow has it>}}.
  std::string json(const Manifest& manifest) const;
};

/// A run's samples by task and method.
std::map<std::string, std::map<std::string, std::vector<SampleResult>>> samples_by_task(const RunFolder& folder);

/// A text as the user's message in a template, or alone behind the begin token.
std::vector<std::int32_t> user_prompt(const Tokenizer& tokenizer, const std::optional<ChatWriter>& template_of,
                                      std::string text, bool thinking = false);

/// " --tasks qasper,trec --samples 20 --max-length 3500".
std::string file_arguments(const FileChoice& choice);

/// `File`: what is read of a task's file; its size() is the number of samples, and `hash` is of all that scores depend
/// on.
template <class File>
class FileDataset : public Dataset {
 public:
  std::vector<std::string> tasks() const override { return choice_.tasks; }
  std::uint32_t samples_of(const std::string& task) const override {
    const auto all = static_cast<std::uint32_t>(file(task).size());
    return choice_.samples == 0 ? all : std::min(choice_.samples, all);
  }
  /// longbench/v1+data:<hash>+tok:<hash>+template:<none, a chat format, or folder-<hash>><protocol_part()>+budget:<as
  /// ruler's>+query:aware+question:in-prefill+eos:stops
  std::string protocol_id(const Manifest& manifest) const override {
    std::uint64_t hash = 0;
    for (const auto& [task, file] : files_) hash = mix64(hash ^ fnv1a64(task) ^ mix64(file.hash));
    return fmt::format("{}/v1+data:{:016x}+tok:{}+template:{}{}{}", name(), hash, manifest.tokenizer_hash,
                       choice_.template_of ? choice_.template_of->name() : "none", protocol_part(),
                       protocol_end(manifest));
  }
  std::string arguments() const override { return file_arguments(choice_); }
  std::uint32_t longest_prompt() const override { return longest_prompt_; }
  std::string own_section(const RunFolder& folder, const Summary& summary, bool markdown) const override {
    return figures(folder, summary).text(summary, markdown);
  }
  std::string own_json(const RunFolder& folder, const Summary& summary) const override {
    return figures(folder, summary).json(folder.manifest());
  }

  std::uint32_t max_length() const { return choice_.max_length; }
  const File& file(const std::string& task) const { return files_.at(task); }

 protected:
  FileDataset(FileChoice choice, const Model& model) : choice_(std::move(choice)), model_(model) {}
  virtual std::string protocol_part() const = 0;  // "+length:cut-middle-3500+score:upstream"
  virtual FigureTable figures(const RunFolder&, const Summary&) const { return {}; }

  FileChoice choice_;
  const Model& model_;
  std::map<std::string, File> files_;
  std::uint32_t longest_prompt_ = 0;
};

/// Python's text.format(name=value, ...): a value in the place of its name in braces, and of two equal braces one.
/// Nothing for a text that it refuses, as one with another name; `refused`: where that is.
std::optional<std::string> python_format(std::string_view text,
                                         const std::vector<std::pair<std::string_view, std::string_view>>& values,
                                         std::size_t* refused = nullptr);

/// For each sample's text its number among the different ones, in order of appearance: SampleResult::document. Empty
/// where no text is there twice.
template <class Texts>
std::vector<std::uint32_t> number_documents(const Texts& texts) {
  std::unordered_map<std::string_view, std::uint32_t> numbers;
  std::vector<std::uint32_t> of;
  for (const std::string_view text : texts)
    of.push_back(numbers.try_emplace(text, static_cast<std::uint32_t>(numbers.size())).first->second);
  if (numbers.size() == of.size()) of.clear();
  return of;
}

/// The .jsonl files in these folders, folders in them aside, that are not `read`; sorted, each once. None of a folder
/// that is not there. People keep notes beside their data, so they are not refused; but a misspelt name would leave out
/// data without a word, so the user is told.
std::vector<std::filesystem::path> unread_files(const std::vector<std::filesystem::path>& folders,
                                                const std::set<std::filesystem::path>& read);

/// One sentence about these files in `folder`, the value of `option`, which names five of them at most; empty where
/// there are none. A path that ends with a slash is a folder that cannot be opened. `rule`: what names must be.
std::string unread_note(std::string_view option, const std::filesystem::path& folder,
                        const std::vector<std::filesystem::path>& files, std::string_view rule);

}  // namespace tandem::eval
