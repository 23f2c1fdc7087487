#include "eval/run/file_dataset.h"

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "engine/common/interrupt.h"
#include "engine/common/json.h"
#include "eval/report/table.h"
#include "eval/run/option_values.h"

namespace tandem::eval {

namespace fs = std::filesystem;

std::vector<DatasetOption> FileCommand::options() {
  std::vector<DatasetOption> options = {{"--tasks", &tasks_, rules_.tasks}, {"--samples", &samples_, rules_.samples}};
  if (rules_.max_length != nullptr) options.push_back({"--max-length", &max_length_, rules_.max_length});
  return options;
}

void FileCommand::check(const DatasetHost&) {
  if (samples_ && (*samples_ < 1 || *samples_ > 100000))
    throw_input_error("--samples is {}: give 1 to 100000, or leave it out for all.", *samples_);
  if (!tasks_.empty()) choice_.tasks = split_list(tasks_, "--tasks");
  for (const std::string& task : choice_.tasks) rules_.check_task(task);
  if (!max_length_.empty()) choice_.max_length = parse_one_length(max_length_, "--max-length");
}

std::unique_ptr<Dataset> FileCommand::open(const DatasetSetting& with) {
  choice_.data = data;
  choice_.samples = samples_.value_or(0);
  choice_.template_of = with.template_of;
  choice_.progress = [&](std::uint64_t done, std::uint64_t total) { with.host.progress(rules_.reading, done, total); };
  return rules_.open(choice_, with.model);
}

std::vector<fs::path> FileCommand::unread() const {
  return rules_.unread ? rules_.unread(data) : std::vector<fs::path>();
}

std::string FigureTable::text(const Summary& summary, bool markdown) const {
  Table table;
  table.head = head;
  table.leading = head.size();
  for (const std::string& label : labels_of(summary, markdown)) table.head.push_back(label);
  for (const FigureRow& row : rows) {
    std::vector<std::string>& cells = table.rows.emplace_back(row.names);
    for (const MethodSummary& method : summary.methods) {
      const auto found = row.figures.find(method.label);
      cells.push_back(found == row.figures.end() ? "-" : fmt::format("{:.2f}", found->second));
    }
  }
  std::string text = section(title, markdown) + text_of(table, markdown);
  for (const std::string& paragraph : notes) text += note(paragraph, markdown);
  return text;
}

std::string FigureTable::json(const Manifest& manifest) const {
  nlohmann::ordered_json json;
  json["protocol_id"] = manifest.protocol_id;
  if (lists_all)
    for (const MethodEntry& method : manifest.methods) json["methods"][method.label] = nlohmann::ordered_json::object();
  for (const FigureRow& row : rows) {
    if (row.task.empty()) continue;
    for (const auto& [label, figure] : row.figures) {
      nlohmann::ordered_json& of = json["methods"][label][row.task];
      (row.key.empty() ? of : of[row.key]) = figure;
    }
  }
  return json_text(json, 2) + "\n";
}

std::map<std::string, std::map<std::string, std::vector<SampleResult>>> samples_by_task(const RunFolder& folder) {
  std::map<std::string, std::map<std::string, std::vector<SampleResult>>> samples;
  for (SampleResult& sample : folder.samples()) samples[sample.task][sample.method].push_back(std::move(sample));
  return samples;
}

std::vector<std::int32_t> user_prompt(const Tokenizer& tokenizer, const std::optional<ChatWriter>& template_of,
                                      std::string text, bool thinking) {
  if (!template_of) return tokenizer.encode(text, /*add_bos=*/true);
  const ChatMessage message{"user", std::move(text)};
  return tokenizer.encode(template_of->write({&message, 1}, {.thinking = thinking}), /*add_bos=*/false,
                          Specials::parsed);
}

std::optional<std::string> python_format(std::string_view text,
                                         const std::vector<std::pair<std::string_view, std::string_view>>& values,
                                         std::size_t* refused) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool brace = c == '{' || c == '}';
    if (!brace || text.substr(i + 1, 1) == text.substr(i, 1)) {
      out += c;
      i += brace ? 1 : 0;
      continue;
    }
    const std::size_t end = c == '{' ? text.find('}', i) : std::string_view::npos;
    const auto value =
        std::ranges::find(values, text.substr(i + 1, end - i - 1), [](const auto& of) { return of.first; });
    if (end == std::string_view::npos || value == values.end()) {
      if (refused != nullptr) *refused = i;
      return std::nullopt;
    }
    out += value->second;
    i = end;
  }
  return out;
}

std::string file_arguments(const FileChoice& choice) {
  return fmt::format(" --tasks {}{}{}", shell_word(fmt::format("{}", fmt::join(choice.tasks, ","))),
                     choice.samples == 0 ? "" : fmt::format(" --samples {}", choice.samples),
                     choice.max_length == 0 ? "" : fmt::format(" --max-length {}", choice.max_length));
}

std::vector<fs::path> unread_files(const std::vector<fs::path>& folders, const std::set<fs::path>& read) {
  std::set<fs::path> unread;
  for (const fs::path& folder : folders) {
    std::error_code refused, unknown;
    for (fs::directory_iterator at(folder, refused); !refused && at != fs::directory_iterator();
         at.increment(refused)) {
      stop_if_interrupted();
      const fs::path& path = at->path();
      // A link that leads nowhere is data that is left out, too.
      if (path.extension() == ".jsonl" && !at->is_directory(unknown) && !read.contains(path)) unread.insert(path);
    }
  }
  return {unread.begin(), unread.end()};
}

std::string unread_note(std::string_view option, const fs::path& folder, const std::vector<fs::path>& files,
                        std::string_view rule) {
  constexpr std::size_t kNamed = 5;
  if (files.empty()) return "";
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(files.size(), kNamed); ++i) {
    names.push_back(files[i].lexically_relative(folder).string());
    if (!files[i].has_filename()) names.back() += " (cannot be opened)";
  }
  const std::string more = files.size() > kNamed ? fmt::format(" and {} more", files.size() - kNamed) : "";
  return fmt::format("{}: not read from '{}': {}{}; {}.", option, folder.string(), fmt::join(names, ", "), more, rule);
}

}  // namespace tandem::eval
