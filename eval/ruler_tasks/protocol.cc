#include "eval/ruler_tasks/protocol.h"

#include <algorithm>
#include <fmt/ranges.h>

#include "engine/common/error.h"
#include "eval/ruler_tasks/texts.h"
#include "eval/ruler_tasks/wording.h"

namespace tandem::eval {
namespace {

constexpr std::string_view kPrefix = "ruler/";

using Fields = std::vector<std::pair<std::string, std::string>>;

std::string questions_of(const std::shared_ptr<const QuestionSet>& set, const char* format) {
  return set == nullptr ? "made-up" : fmt::format("{}-{}", format, set->hash);
}

std::string value_of(const Fields& fields, std::string_view name) {
  const auto found = std::find_if(fields.begin(), fields.end(), [&](const auto& field) { return field.first == name; });
  return found == fields.end() ? "" : found->second;
}

/// Where the text of `task` came from; empty where every run has the same.
std::string source_of(const RulerTask& task, const Fields& fields) {
  if (task.haystack == RulerTask::Haystack::prose) {
    const std::string essay = value_of(fields, "essay");
    return essay == "prose" ? "in invented prose" : fmt::format("in the essays of a file ({})", essay);
  }
  if (task.family != RulerTask::Family::facts) return "";
  const std::string questions = value_of(fields, task.name);
  return questions == "made-up" ? "on made-up facts" : fmt::format("with the questions of a file ({})", questions);
}

}  // namespace

std::string ruler_protocol_id(const RulerProtocol& protocol) {
  Fields fields;
  const bool official = !protocol.data_hash.empty();
  if (official) {
    fields = {{"data", protocol.data_hash}};
  } else {
    const RulerWording& wording = ruler_wording();
    fields = {{"essay", protocol.texts.essays == nullptr ? "prose" : protocol.texts.essays->hash},
              {"qa_1", questions_of(protocol.texts.squad, "squad")},
              {"qa_2", questions_of(protocol.texts.hotpot, "hotpot")},
              {"wording", wording.wording_hash},
              {"words", wording.words_hash}};
  }
  const bool answers_from_files = official || protocol.texts.squad != nullptr || protocol.texts.hotpot != nullptr;
  fields.insert(fields.end(), {{"tok", protocol.tokenizer_hash.empty() ? "unknown" : protocol.tokenizer_hash},
                               {"template", protocol.chat_template},
                               {"length", official ? "as-is" : "fitted"},
                               {"score", answers_from_files ? "upstream-v2" : "upstream"},
                               {"budget", protocol.budget},
                               {"query", "aware"},
                               {"question", "in-prefill"},
                               {"eos", "stops"}});
  std::string id = std::string(kPrefix) + (official ? "official-v2" : "embedded-v4");
  for (const auto& [name, value] : fields) {
    TANDEM_CHECK(value.find('+') == std::string::npos, "'{}' in the field '{}' of the protocol id", value, name);
    id += fmt::format("+{}:{}", name, value);
  }
  return id;
}

Fields ruler_protocol_fields(std::string_view id) {
  if (!id.starts_with(kPrefix)) return {};
  id.remove_prefix(kPrefix.size());
  Fields fields;
  while (!id.empty()) {
    const std::string_view part = id.substr(0, id.find('+'));
    id.remove_prefix(std::min(id.size(), part.size() + 1));
    const std::size_t colon = part.find(':');
    if (fields.empty()) {
      fields.emplace_back("variant", part);
    } else if (colon != std::string_view::npos) {
      fields.emplace_back(part.substr(0, colon), part.substr(colon + 1));
    } else {
      return {};
    }
  }
  return fields;
}

bool ruler_reads_files(std::string_view id) {
  return !value_of(ruler_protocol_fields(id), "data").empty();
}

std::string ruler_data_text(std::string_view id, const std::vector<std::string>& tasks) {
  const Fields fields = ruler_protocol_fields(id);
  if (const std::string data = value_of(fields, "data"); !data.empty())
    return fmt::format("official files as they are ({})", data);
  if (value_of(fields, "essay").empty()) return "";
  std::vector<std::pair<std::string, std::vector<std::string>>> by_source;
  for (const RulerTask& task : ruler_tasks()) {
    if (std::find(tasks.begin(), tasks.end(), task.name) == tasks.end()) continue;
    const std::string source = source_of(task, fields);
    if (source.empty()) continue;
    if (by_source.empty() || by_source.back().first != source) by_source.emplace_back(source, 0);
    by_source.back().second.push_back(task.name);
  }
  std::string text = "embedded source";
  for (const auto& [source, names] : by_source) text += fmt::format("; {} {}", join_names(names), source);
  return text;
}

std::vector<std::string> ruler_repeating_tasks(std::string_view id, const std::vector<std::string>& tasks) {
  const Fields fields = ruler_protocol_fields(id);
  const bool official = !value_of(fields, "data").empty();
  std::vector<std::string> repeating;
  for (const RulerTask& task : ruler_tasks()) {
    if (task.family != RulerTask::Family::facts) continue;
    if (std::find(tasks.begin(), tasks.end(), task.name) == tasks.end()) continue;
    const std::string questions = value_of(fields, task.name);
    // Upstream too takes the n-th question of its file for the n-th sample of any length.
    if (official || (!questions.empty() && questions != "made-up")) repeating.push_back(task.name);
  }
  return repeating;
}

std::string ruler_data_difference(std::string_view there, std::string_view here) {
  const Fields a = ruler_protocol_fields(there), b = ruler_protocol_fields(here);
  if (a.empty() || b.empty() || a.front() != b.front()) return "";
  std::vector<std::string> parts;
  for (const char* name : {"data", "essay", "qa_1", "qa_2", "wording", "words"}) {
    const std::string before = value_of(a, name), now = value_of(b, name);
    if (before != now) parts.push_back(fmt::format("{}: {} there, {} here", name, before, now));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace tandem::eval
