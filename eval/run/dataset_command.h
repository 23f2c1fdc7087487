// A dataset's part of `tandem eval <name>`. A new dataset is a folder with a DatasetCommand, a Dataset that it opens,
// and a line in eval/datasets.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/model/chat.h"
#include "engine/model/model.h"
#include "eval/run/dataset.h"

namespace tandem::eval {

/// An option of the command line; what the variable holds is its default.
struct DatasetOption {
  using Value = std::variant<std::string*, std::uint32_t*, std::uint64_t*, float*, double*,
                             std::optional<std::uint32_t>*, std::optional<std::uint64_t>*, std::vector<std::string>*>;
  const char* name;  // "--depths"
  Value value;       // a list: may be given again, each time with one value
  std::string help;
};

/// Services of the program for a dataset.
struct DatasetHost {
  std::function<bool(const char* option)> given;  // whether the command line has it
  /// The text of a file or an open pipe; `what` begins the sentences.
  std::function<std::string(const std::string& file, const std::string& what)> read_text;
  /// A line of progress, "reading documents".
  std::function<void(const char* doing, std::uint64_t done, std::uint64_t total)> progress;
};

/// How prompts are put into a chat template. Absent where a dataset takes none.
struct ChatChoice {
  bool chat = false, no_thinking = false;
  std::string format;  // empty: the template of the model's folder
};

/// Everything that opening a dataset needs. The model outlives the dataset, which keeps nothing else of it.
struct DatasetSetting {
  const Model& model;
  std::optional<ChatWriter> template_of;
  const DatasetHost& host;
};

class DatasetCommand {
 public:
  virtual ~DatasetCommand() = default;
  virtual std::vector<DatasetOption> options() = 0;
  /// Where the option --no-thinking is offered, too.
  virtual bool thinks() const { return false; }
  /// InputError for what can be found wrong before a model is loaded.
  virtual void check(const DatasetHost&) {}
  /// Reads the dataset. InputError for files that cannot be used and for prompts that the model has no positions for;
  /// Interrupted where a signal came.
  virtual std::unique_ptr<Dataset> open(const DatasetSetting& with) = 0;
  /// Sentences for the user about the data, before it is run.
  virtual std::vector<std::string> notes(const Model&) const { return {}; }
  /// Files in --data that no task is read from, because of their names.
  virtual std::vector<std::filesystem::path> unread() const { return {}; }
  /// Whether the user chose the tasks, so that no file is left out unseen.
  virtual bool chose_tasks() const { return true; }

  std::string data;                // --data, where the entry has help for it
  std::optional<ChatChoice> chat;  // set by a dataset's constructor
};

struct DatasetEntry {
  const char* name;
  const char* summary;    // the command's line in `tandem eval --help`
  const char* doing;      // of the progress line: "answering"
  const char* methods;    // by default
  const char* data_help;  // null: it reads no --data
  const char* data_option = "--data";
  const char* lengths;         // the option, or the words, that name what makes prompts long: "--max-length"
  std::uint32_t batch = 1;     // sequences decoded together, by default
  const char* file_rule = "";  // what names of files in --data must be, for the sentence about unread ones
  const char* footer;          // examples, and what is to be known
  std::unique_ptr<DatasetCommand> (*make)();
};

}  // namespace tandem::eval
