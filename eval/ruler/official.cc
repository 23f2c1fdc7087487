#include "eval/ruler/official.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/common/error.h"
#include "eval/ruler/random.h"

namespace tandem::eval {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

[[noreturn]] void refuse(const std::string& file, std::size_t line, const std::string& what) {
  throw_input_error("{}, line {}: {}.", file, line, what);
}

const Json& field(const Json& object, const char* name, const std::string& file, std::size_t line) {
  const auto found = object.find(name);
  if (found == object.end()) refuse(file, line, fmt::format("'{}' is missing", name));
  return *found;
}

std::string text_of(const Json& value, const char* name, const std::string& file, std::size_t line) {
  if (!value.is_string()) refuse(file, line, fmt::format("'{}' must be a string", name));
  return value.get<std::string>();
}

OfficialSample parse_line(std::string_view text, const std::string& file, std::size_t line) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) refuse(file, line, "not a JSON object");
  OfficialSample sample;
  sample.prompt = text_of(field(json, "input", file, line), "input", file, line);
  if (const auto prefix = json.find("answer_prefix"); prefix != json.end())
    sample.prompt += text_of(*prefix, "answer_prefix", file, line);
  if (sample.prompt.empty()) refuse(file, line, "'input' is empty");
  const Json& outputs = field(json, "outputs", file, line);
  if (!outputs.is_array() || outputs.empty()) refuse(file, line, "'outputs' must be a list of at least one answer");
  for (const Json& answer : outputs) sample.answers.push_back(text_of(answer, "outputs", file, line));
  return sample;
}

std::string read_file(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw_input_error("The RULER file '{}' cannot be read.", file.string());
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

bool is_task(const std::string& name) {
  const std::vector<RulerTask>& all = ruler_tasks();
  return std::any_of(all.begin(), all.end(), [&](const RulerTask& task) { return task.name == name; });
}

/// Upstream names the file after the task, or after the split inside a folder of the task.
std::string task_of(const fs::path& file) {
  const std::string stem = file.stem().string(), folder = file.parent_path().filename().string();
  if (is_task(stem)) return stem;
  if (is_task(folder)) return folder;
  throw_input_error("'{}' is no RULER task: neither the file nor its folder is named after one of {}.", file.string(),
                    join_names(expand_ruler_tasks("all")));
}

/// The nearest folder above that is a number; 0 without one.
std::uint32_t length_of(const fs::path& file) {
  for (fs::path folder = fs::absolute(file).parent_path(); folder.has_filename(); folder = folder.parent_path()) {
    const std::string name = folder.filename().string();
    std::uint32_t length = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), length);
    if (error == std::errc() && end == name.data() + name.size() && length > 0) return length;
  }
  return 0;
}

std::vector<fs::path> jsonl_files(const fs::path& path) {
  std::error_code refused;
  if (fs::is_regular_file(path, refused)) return {path};
  if (!fs::is_directory(path, refused))
    throw_input_error("--ruler-data: there is no file or folder '{}'.", path.string());
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(path, fs::directory_options::skip_permission_denied)) {
    if (entry.is_regular_file(refused) && entry.path().extension() == ".jsonl") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  if (files.empty()) throw_input_error("--ruler-data: '{}' holds no .jsonl file.", path.string());
  return files;
}

}  // namespace

std::vector<OfficialSample> parse_official(std::string_view text, const std::string& file) {
  std::vector<OfficialSample> samples;
  for (std::size_t line = 1; !text.empty(); ++line) {
    const std::size_t end = text.find('\n');
    std::string_view one = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (one.ends_with('\r')) one.remove_suffix(1);
    if (one.empty()) continue;
    samples.push_back(parse_line(one, file, line));
  }
  if (samples.empty()) throw_input_error("{} holds no sample.", file);
  return samples;
}

OfficialRuler::OfficialRuler(const fs::path& path) {
  std::set<std::string> tasks;
  std::set<std::uint32_t> lengths;
  for (const fs::path& file : jsonl_files(path)) {
    const std::string task = task_of(file), text = read_file(file);
    const std::uint32_t length = length_of(file);
    if (length == 0) {
      throw_input_error("The length of '{}' is not known: put it into a folder named after its length, as in 4096/{}.",
                        file.string(), file.filename().string());
    }
    File parsed{parse_official(text, file.string()), fnv1a64(text)};
    if (!files_.emplace(std::pair(task, length), std::move(parsed)).second)
      throw_input_error("--ruler-data: there are two files of {} at length {}; '{}' is one.", task, length,
                        file.string());
    tasks.insert(task);
    lengths.insert(length);
  }
  for (const std::string& task : tasks) {
    for (const std::uint32_t length : lengths) {
      if (files_.count({task, length}) == 0) {
        throw_input_error("--ruler-data: {} is there at another length, but not at {}: give files of the same lengths.",
                          task, length);
      }
    }
  }
  for (const RulerTask& task : ruler_tasks()) {
    if (tasks.count(task.name) != 0) tasks_.push_back(task.name);
  }
  lengths_.assign(lengths.begin(), lengths.end());
}

std::uint32_t OfficialRuler::samples() const {
  std::size_t least = files_.begin()->second.samples.size();
  for (const auto& [key, file] : files_) least = std::min(least, file.samples.size());
  return static_cast<std::uint32_t>(least);
}

RulerSample OfficialRuler::sample(std::string_view task, std::uint32_t length, std::uint32_t n,
                                  const TokenCounter& count_tokens) const {
  const OfficialSample& found = files_.at({std::string(task), length}).samples.at(n);
  RulerSample sample;
  sample.task = task;
  sample.length = length;
  sample.index = n;
  sample.prompt = found.prompt;
  sample.answers = found.answers;
  sample.prompt_tokens = count_tokens(sample.prompt);
  sample.max_new_tokens = upstream_max_new_tokens(find_ruler_task(task));
  return sample;
}

std::string OfficialRuler::hash() const {
  std::uint64_t hash = 0;
  for (const auto& [key, file] : files_) hash = mix64(hash ^ fnv1a64(key.first) ^ mix64(key.second ^ file.hash));
  return fmt::format("{:016x}", hash);
}

}  // namespace tandem::eval
