#include "eval/ruler_tasks/official.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fmt/ranges.h>
#include <set>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/common/error.h"
#include "engine/common/interrupt.h"
#include "engine/common/json_lines.h"
#include "engine/common/read_file.h"
#include "eval/ruler_tasks/random.h"
#include "eval/scoring/python_text.h"

namespace tandem::eval {
namespace {

namespace fs = std::filesystem;

RulerSample sample_of(const JsonLine& line) {
  RulerSample sample;
  sample.prompt = line.text("input");
  if (line.has("answer_prefix")) sample.prompt += line.text("answer_prefix");
  if (sample.prompt.empty()) line.refuse("'input' is empty");
  sample.answers = line.texts("outputs");
  if (sample.answers.empty()) line.refuse("'outputs' must be a list of at least one answer");
  for (const std::string& answer : sample.answers)  // which every text would contain
    if (answer.find_first_not_of(" \t\r\n") == std::string::npos) line.refuse("'outputs' has an answer without text");
  return sample;
}

bool is_task(const std::string& name) {
  const std::vector<RulerTask>& all = ruler_tasks();
  return std::any_of(all.begin(), all.end(), [&](const RulerTask& task) { return task.name == name; });
}

/// The number that a folder's name is; 0 where it is none, or no length.
std::uint32_t length_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  std::uint32_t length = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), length);
  const bool whole = error == std::errc() && end == name.data() + name.size();
  return whole && length <= kMaxRulerLength ? length : 0;
}

/// What a file holds by its place; the task is empty, or the length 0, where that does not say it.
struct Place {
  std::string task;
  std::uint32_t length = 0;
  bool known() const { return !task.empty() && length > 0; }
};

Place place_of(const fs::path& file) {
  const fs::path whole = fs::absolute(file).lexically_normal(), folder = whole.parent_path();
  const std::string stem = whole.stem().string(), name = folder.filename().string();
  if (is_task(stem)) return {stem, length_of(folder)};
  if (stem != "validation" || !is_task(name)) return {};
  const fs::path above = folder.parent_path();
  return {name, length_of(above.filename() == "data" ? above.parent_path() : above)};
}

[[noreturn]] void refuse_place(const fs::path& file, const Place& place) {
  if (place.task.empty()) {
    throw_input_error(
        "--ruler-data: '{}' is no RULER task: neither the file nor, for a validation.jsonl, its folder is named after "
        "one of {}.",
        file.string(), join_names(expand_ruler_tasks("all")));
  }
  throw_input_error(
      "--ruler-data: the length of '{}' is not known: put it into a folder named after its length, as in "
      "4096/{}.jsonl.",
      file.string(), place.task);
}

/// What a folder holds, folders in it included.
struct Inside {
  std::vector<fs::path> files;   // .jsonl, sorted
  std::vector<fs::path> closed;  // folders that may not be read, with a slash at the end, links that lead nowhere, and
                                 // links to a folder that is read at another place
};

/// Whether a link in `top` leads to a folder on the way from there to it.
bool leads_up(const fs::path& link, const fs::path& top) {
  std::error_code unknown;
  for (fs::path above = link; above != top && above.has_relative_path();) {
    above = above.parent_path();
    if (fs::equivalent(above, link, unknown)) return true;
  }
  return false;
}

/// Reads each folder once, a folder at its own place before one that a link leads to: with links to folders that hold
/// links there are more ways to a folder than anybody can walk.
Inside jsonl_files(const fs::path& folder) {
  Inside inside;
  auto& [files, closed] = inside;
  std::set<std::pair<dev_t, ino_t>> read;
  std::set<fs::path> folders = {folder}, links;  // that are still to be read
  while (!folders.empty() || !links.empty()) {
    std::set<fs::path>& from = folders.empty() ? links : folders;
    const fs::path here = std::move(from.extract(from.begin()).value());
    struct stat status {};
    if (stat(here.c_str(), &status) != 0 || access(here.c_str(), R_OK) != 0) {
      closed.push_back(here / "");
      continue;
    }
    if (!read.emplace(status.st_dev, status.st_ino).second) {
      if (!leads_up(here, folder)) closed.push_back(here);
      continue;
    }
    std::error_code refused, unknown;
    for (fs::directory_iterator at(here, refused); !refused && at != fs::directory_iterator(); at.increment(refused)) {
      stop_if_interrupted();
      if (at->is_directory(unknown)) {
        (at->is_symlink(unknown) ? links : folders).insert(at->path());
      } else if (at->path().extension() == ".jsonl") {
        (at->is_regular_file(unknown) ? files : closed).push_back(at->path());
      }
    }
    if (refused == std::errc::permission_denied) {
      closed.push_back(here / "");
    } else if (refused) {
      throw_input_error("--ruler-data: the folder '{}' cannot be read to its end ({}).", here.string(),
                        refused.message());
    }
  }
  std::sort(files.begin(), files.end());
  const fs::path& shut = closed.empty() ? folder : closed.front();
  if (files.empty() && access(shut.c_str(), R_OK | X_OK) != 0)
    throw_input_error("--ruler-data: '{}' cannot be read ({}).", shut.string(), std::strerror(errno));
  if (files.empty()) throw_input_error("--ruler-data: '{}' holds no .jsonl file.", folder.string());
  return inside;
}

/// run.sh leaves predictions beside its data, under the same names.
bool is_prediction(const fs::path& file) {
  return file.parent_path().filename() == "pred";
}

using Listing = std::map<std::pair<std::string, std::uint32_t>, std::vector<fs::path>>;

/// Files by task and length, from their names alone; `unread`: those whose place says neither, sorted.
Listing list_files(const fs::path& path, std::vector<fs::path>& unread) {
  std::error_code refused;
  if (fs::is_regular_file(path, refused)) {
    const Place place = place_of(path);
    if (!place.known()) refuse_place(path, place);
    return {{{place.task, place.length}, {path}}};
  }
  if (!fs::is_directory(path, refused))
    throw_input_error("--ruler-data: there is no file or folder '{}'.", path.string());
  Listing listing;
  Inside inside = jsonl_files(path);
  unread = std::move(inside.closed);
  for (const fs::path& file : inside.files) {
    const Place place = place_of(file);
    if (place.known()) {
      listing[{place.task, place.length}].push_back(file);
    } else if (!is_prediction(file)) {
      unread.push_back(file);
    }
  }
  if (listing.empty()) refuse_place(inside.files.front(), place_of(inside.files.front()));
  std::sort(unread.begin(), unread.end());
  return listing;
}

/// Tasks and lengths of the files, as far as they meet `tasks` and `lengths` (empty: any).
std::pair<std::set<std::string>, std::set<std::uint32_t>> found_in(const Listing& listing,
                                                                   const std::vector<std::string>& tasks,
                                                                   const std::vector<std::uint32_t>& lengths) {
  const auto meets = [](const auto& asked, const auto& one) {
    return asked.empty() || std::ranges::find(asked, one) != asked.end();
  };
  std::pair<std::set<std::string>, std::set<std::uint32_t>> found;
  for (const auto& [key, files] : listing) {
    if (!meets(tasks, key.first) || !meets(lengths, key.second)) continue;
    found.first.insert(key.first);
    found.second.insert(key.second);
  }
  return found;
}

/// InputError for a task or length that no file has.
void check_asked(const Listing& listing, const std::vector<std::string>& tasks,
                 const std::vector<std::uint32_t>& lengths) {
  const auto check = [](const auto& asked, const auto& there, const char* option) {
    for (const auto& one : asked) {
      if (there.count(one) == 0)
        throw_input_error("{}: {} is not among the official files, which hold {}.", option, one,
                          fmt::join(there, ", "));
    }
  };
  const auto there = found_in(listing, {}, {});
  check(tasks, there.first, "--tasks");
  check(lengths, there.second, "--lengths");
}

/// Whether `user` begins the prompt or comes after a sentence of introduction, and `assistant` before what answers
/// begin with, if anything.
bool is_talk(std::string_view prompt, std::string_view user, std::string_view assistant) {
  constexpr std::size_t kIntroduction = 256, kAnswerPrefix = 256;  // bytes
  const auto is_name = [&](std::size_t at) {
    return at != std::string_view::npos && (at == 0 || prompt[at - 1] == ' ' || prompt[at - 1] == '\n');
  };
  const std::size_t from = prompt.find(user), to = prompt.rfind(assistant);
  return is_name(from) && is_name(to) && from < to && from < kIntroduction &&
         prompt.size() - to < assistant.size() + kAnswerPrefix;
}

/// A word in angle or square brackets that the prompt begins with, as special tokens are written; empty where there is
/// none.
std::string_view leading_mark(std::string_view prompt) {
  constexpr std::size_t kLongest = 40;  // bytes
  if (prompt.empty() || (prompt[0] != '<' && prompt[0] != '[')) return "";
  const std::size_t end = prompt.find_first_of(" \t\n>]", 1);
  const bool closed = end != std::string_view::npos && end > 1 && prompt[end] == (prompt[0] == '<' ? '>' : ']');
  return closed && end < kLongest ? prompt.substr(0, end + 1) : "";
}

[[noreturn]] void refuse_gap(const Listing& listing, const std::string& task, std::uint32_t length) {
  throw_input_error(
      "--ruler-data: there is no file of {} at length {}, only at {}: give it, or choose other --tasks or --lengths.",
      task, length, fmt::join(found_in(listing, {task}, {}).second, ", "));
}

}  // namespace

std::vector<RulerSample> parse_official(std::string_view text, const std::string& file) {
  std::vector<RulerSample> samples;
  std::set<std::uint64_t> prompts;  // their hashes
  for_each_json_line(text, file, [&](const JsonLine& line) {
    samples.push_back(sample_of(line));
    if (!prompts.insert(fnv1a64(samples.back().prompt)).second)
      line.refuse("'input' is that of an earlier line: as two samples it would count twice");
  });
  return samples;
}

ChatTemplate chat_template_of(std::string_view prompt) {
  prompt = strip(prompt);
  for (const std::string_view begin : {"<s>", "<bos>", "<BOS_TOKEN>", "<|begin_of_text|>", "<|startoftext|>"}) {
    if (prompt.starts_with(begin)) prompt = strip(prompt.substr(begin.size()));
  }
  for (const std::string_view mark :
       {"<|im_start|>", "<|start_header_id|>", "[INST]", "<start_of_turn>", "<|system|>", "<|user|>", "<|start|>",
        "<|START_OF_TURN_TOKEN|>", "[gMASK]", "<|bom|>", "<SPECIAL_10>"}) {
    if (prompt.starts_with(mark)) return {std::string(mark), true};
  }
  for (const auto& [user, assistant] : {std::pair{"USER:", "ASSISTANT:"}, std::pair{"User:", "Assistant:"}}) {
    if (is_talk(prompt, user, assistant)) return {user, true};
  }
  return {std::string(leading_mark(prompt)), false};
}

std::vector<std::int32_t> encode_official(const Tokenizer& tokenizer, std::string_view prompt) {
  if (!chat_template_of(prompt).has_specials()) return tokenizer.encode(prompt, /*add_bos=*/true);
  auto tokens = tokenizer.encode(prompt, /*add_bos=*/true, Specials::parsed);
  if (tokens.size() > 1 && tokens[0] == tokenizer.bos() && tokens[1] == tokens[0]) tokens.erase(tokens.begin());
  return tokens;
}

OfficialRuler::OfficialRuler(const fs::path& path, std::vector<std::string> tasks, std::vector<std::uint32_t> lengths)
    : tasks_(std::move(tasks)), lengths_(std::move(lengths)) {
  const Listing listing = list_files(path, unread_);
  check_asked(listing, tasks_, lengths_);
  if (tasks_.empty()) {
    const std::set<std::string> there = found_in(listing, {}, lengths_).first;
    for (const RulerTask& task : ruler_tasks()) {
      if (there.count(task.name) != 0) tasks_.push_back(task.name);
    }
  }
  if (lengths_.empty()) {
    const std::set<std::uint32_t> there = found_in(listing, tasks_, {}).second;
    lengths_.assign(there.begin(), there.end());
  }
  for (const std::string& task : tasks_) {
    for (const std::uint32_t length : lengths_) {
      const auto found = listing.find({task, length});
      if (found == listing.end()) refuse_gap(listing, task, length);
      const std::vector<fs::path>& files = found->second;
      if (files.size() > 1)
        throw_input_error("--ruler-data: there are two files of {} at length {}: '{}' and '{}'.", task, length,
                          files[0].string(), files[1].string());
      const std::string text = read_file(files[0], kMostOfData);
      files_[{task, length}] = {parse_official(text, files[0].string()), fnv1a64(text)};
    }
  }
}

const std::pair<const OfficialRuler::Key, OfficialRuler::File>& OfficialRuler::shortest() const {
  return *std::min_element(files_.begin(), files_.end(), [](const auto& a, const auto& b) {
    return a.second.samples.size() < b.second.samples.size();
  });
}

std::uint32_t OfficialRuler::samples() const {
  return static_cast<std::uint32_t>(shortest().second.samples.size());
}

std::string OfficialRuler::fewest() const {
  const auto& [task, length] = shortest().first;
  return fmt::format("{} at length {}", task, length);
}

ChatTemplate OfficialRuler::chat_template() const {
  ChatTemplate found;
  for (const auto& [key, file] : files_) {
    for (const RulerSample& sample : file.samples) {
      ChatTemplate one = chat_template_of(sample.prompt);
      if (one.known) return one;
      if (found.mark.empty()) found = std::move(one);
    }
  }
  return found;
}

RulerSample OfficialRuler::sample(std::string_view task, std::uint32_t length, std::uint32_t n,
                                  const TokenCounter& count_tokens) const {
  RulerSample sample = files_.at({std::string(task), length}).samples.at(n);
  sample.index = n;
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
