#include <algorithm>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <ranges>
#include <set>

#include "engine/common/error.h"
#include "engine/common/json_lines.h"
#include "engine/model/json_fields.h"
#include "eval/longbench/longbench.h"

namespace tandem::eval {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::uint32_t kMostNewTokens = 1 << 16;

LongBenchRecord record_of(const JsonLine& line) {
  LongBenchRecord record;
  record.input = line.text("input");
  record.context = line.text("context");
  record.answers = line.texts("answers");
  if (record.answers.empty()) line.refuse("'answers' must be a list of at least one answer");
  const Json& length = line.field("length");
  if (!length.is_number_integer() || length.get<std::int64_t>() < 0) line.refuse("'length' must be a number of words");
  record.length = length.get<std::int64_t>();
  record.all_classes = line.texts_or_none("all_classes");
  return record;
}

fs::path data_folder(const fs::path& folder) {
  std::error_code refused;
  return fs::is_directory(folder / "data", refused) ? folder / "data" : folder;
}

Json read_config(const fs::path& folder, const char* name) {
  std::error_code refused;
  for (const fs::path& file : {folder / "config" / name, folder / name})
    if (fs::is_regular_file(file, refused)) return read_json_object(file);
  throw_input_error(
      "--data: '{}' holds no config/{}: give the folder LongBench/ of THUDM/LongBench, with the published data in its "
      "data/.",
      folder.string(), name);
}

/// Tasks that the folder has a file of, in upstream's order. LongBench-E, a benchmark of its own, only where the other
/// one is not there.
std::vector<std::string> tasks_in(const fs::path& data) {
  std::error_code refused;
  std::vector<std::string> found;
  for (const std::string_view suffix : {"", "_e"}) {
    for (const LongBenchDataset& dataset : longbench_datasets()) {
      std::string task = fmt::format("{}{}", dataset.name, suffix);
      if (fs::is_regular_file(data / (task + ".jsonl"), refused)) found.push_back(std::move(task));
    }
    if (!found.empty()) break;
  }
  if (found.empty()) {
    throw_input_error("--data: '{}' holds none of LongBench's files, as qasper.jsonl or qasper_e.jsonl.",
                      data.string());
  }
  return found;
}

/// What a score would refuse, before hours of decoding: a retrieval's answer without a paragraph, a choice without
/// classes.
void check_answers(const LongBenchDataset& dataset, const std::vector<LongBenchRecord>& records,
                   const std::string& file) {
  if (needs_segmenter(dataset.metric)) return;  // refuses nothing
  for (std::size_t i = 0; i < records.size(); ++i) {
    const LongBenchRecord& record = records[i];
    if (dataset.metric == LongBenchMetric::classification && record.all_classes.empty())
      throw_input_error("{}, sample {}: 'all_classes' is empty, and answers of {} are among them.", file, i + 1,
                        dataset.name);
    try {
      longbench_score(dataset, "", record.answers, record.all_classes);
    } catch (const InputError& error) {
      throw_input_error("{}, sample {}: {}", file, i + 1, error.what());
    }
  }
}

LongBenchFile read_task(const fs::path& data, const std::string& task, const Json& prompts, const Json& lengths) {
  LongBenchFile file;
  const std::string name(longbench_dataset_of(task));
  file.dataset = &longbench_dataset(name);
  if (name != task && !file.dataset->in_e) throw_input_error("--tasks: LongBench-E has no '{}'.", name);
  const auto prompt = prompts.find(name);
  if (prompt == prompts.end() || !prompt->is_string())
    throw_input_error("dataset2prompt.json has no prompt of '{}'.", name);
  file.prompt = prompt->get<std::string>();
  const auto length = lengths.find(name);
  if (length == lengths.end() || !length->is_number_unsigned() || length->get<std::uint64_t>() < 1 ||
      length->get<std::uint64_t>() > kMostNewTokens)
    throw_input_error("dataset2maxlen.json: '{}' must be a number of tokens from 1 to {}.", name, kMostNewTokens);
  file.max_new_tokens = length->get<std::uint32_t>();
  const fs::path path = data / (task + ".jsonl");
  std::error_code refused;
  if (!fs::is_regular_file(path, refused)) {
    throw_input_error("--tasks: there is no '{}'; '{}' holds {}.", path.filename().string(), data.string(),
                      fmt::join(tasks_in(data), ", "));
  }
  const std::string text = read_file(path, kMostOfData);
  file.records = parse_longbench(text, path.string());
  longbench_prompt(file.prompt, file.records.front());  // a prompt with another field is found now
  check_answers(*file.dataset, file.records, path.string());
  file.documents = number_documents(file.records | std::views::transform(&LongBenchRecord::context));
  file.hash = mix64(mix64(fnv1a64(text)) ^ fnv1a64(file.prompt) ^ file.max_new_tokens);
  return file;
}

}  // namespace

std::string_view longbench_dataset_of(std::string_view task) {
  if (task.ends_with("_e")) task.remove_suffix(2);
  return task;
}

std::vector<LongBenchRecord> parse_longbench(std::string_view text, const std::string& file) {
  std::vector<LongBenchRecord> records;
  for_each_json_line(text, file, [&](const JsonLine& line) { records.push_back(record_of(line)); });
  return records;
}

std::string longbench_prompt(std::string_view prompt, const LongBenchRecord& record) {
  std::size_t refused = 0;
  const auto text = python_format(prompt, {{"context", record.context}, {"input", record.input}}, &refused);
  if (!text)
    throw_input_error("dataset2prompt.json: a prompt has '{}', where only {{context}} and {{input}} are known.",
                      prompt.substr(refused, 20));
  return *text;
}

std::map<std::string, LongBenchFile> read_longbench(const fs::path& folder, std::vector<std::string>& tasks) {
  std::error_code refused;
  if (!fs::is_directory(folder, refused)) throw_input_error("--data: there is no folder '{}'.", folder.string());
  const Json prompts = read_config(folder, "dataset2prompt.json"), lengths = read_config(folder, "dataset2maxlen.json");
  const fs::path data = data_folder(folder);
  if (tasks.empty()) tasks = tasks_in(data);
  std::map<std::string, LongBenchFile> files;
  for (const std::string& task : tasks) files[task] = read_task(data, task, prompts, lengths);
  return files;
}

std::vector<fs::path> unread_longbench(const fs::path& folder) {
  const fs::path data = data_folder(folder);
  std::set<fs::path> read;
  for (const std::string& task : tasks_in(data)) read.insert(data / (task + ".jsonl"));
  return unread_files({folder, data}, read);
}

}  // namespace tandem::eval
