#include "eval/longproc/tasks.h"

#include <algorithm>
#include <charconv>
#include <fmt/args.h>
#include <fmt/ranges.h>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "engine/common/read_file.h"
#include "eval/ruler_tasks/random.h"
#include "eval/scoring/normalise.h"
#include "eval/scoring/python_text.h"

namespace tandem::eval {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Text = std::string_view;
using Lines = std::vector<std::string>;

Lines split(Text text, Text at = "\n") {
  Lines parts;
  for (std::size_t end = 0; (end = text.find(at)) != Text::npos; text.remove_prefix(end + at.size()))
    parts.emplace_back(text.substr(0, end));
  parts.emplace_back(text);
  return parts;
}

std::optional<std::string> tagged(Text text, Text tag) {
  const std::size_t begin = text.find(fmt::format("<{}>", tag)), end = text.find(fmt::format("</{}>", tag));
  if (begin == Text::npos || end == Text::npos) return std::nullopt;
  return std::string(strip(text.substr(0, end).substr(std::min(begin + tag.size() + 2, end))));
}

double number_of(const auto& list) {
  return static_cast<double>(list.size());
}

/// Lines before the first pair that differs.
double same_lines(const Lines& lines, const Lines& right,
                  const std::function<bool(Text, Text)>& same = std::equal_to<>()) {
  const auto differs = std::mismatch(lines.begin(), lines.end(), right.begin(), right.end(), same);
  return static_cast<double>(differs.first - lines.begin());
}

Metrics scores_of(bool right, double partial, bool extracted = true) {
  return {{"accuracy", right}, {"partial_accuracy", right ? 1 : partial}, {"extraction_rate", extracted}};
}

/// The normalised rows below a header, read as Python's csv.reader() reads tabs; none where upstream fails.
std::vector<Lines> read_tsv(Text stripped) {
  const std::string text = std::string(strip(stripped)) + '\n';
  std::vector<Lines> rows(1);
  std::string cell;
  bool begins = true, quoted = false;  // a cell
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (quoted && text[i] == '"' && text[i + 1] != '"') {
      quoted = false;
    } else if (quoted) {
      if (text[i] == '"') ++i;
      if (text[i] != '\n') cell += text[i];  // a cell of several lines
    } else if (text[i] == '"' && begins) {
      begins = !(quoted = true);
    } else if (text[i] == '\t' || text[i] == '\n') {
      if (text[i] == '\t' || !begins || !rows.back().empty()) rows.back().push_back(std::exchange(cell, ""));
      if (text[i] == '\n') rows.emplace_back();
      begins = true;
    } else if (text[i] != '\r') {
      cell += text[i];
      begins = false;
    } else if (text[text.find_first_not_of('\r', i)] != '\n') {
      return {};
    }
  }
  if (quoted)
    rows.back().push_back(cell);
  else
    rows.pop_back();
  const Lines head = rows.front();
  if (rows.size() > 1 && rows.back().size() != head.size()) rows.pop_back();
  if (std::set(head.begin(), head.end()).size() != head.size()) return {};
  rows.erase(rows.begin());
  for (Lines& row : rows) {
    if (row.size() != head.size()) row.assign(head.size(), "N/A");
    for (std::string& one : row) one = replaced(normalise_answer(one), " ", "");
  }
  return rows;
}

Metrics html_to_tsv(Text reference, Text prediction) {
  if (const std::size_t begin = prediction.find("```tsv"); begin != Text::npos) {
    prediction.remove_prefix(begin + 6);
    prediction = prediction.substr(0, prediction.rfind("```"));
  }
  const std::vector<Lines> rows = read_tsv(prediction), right = read_tsv(reference);
  const bool good = !rows.empty() && !right.empty() && rows[0].size() == right[0].size();
  const auto share = [good](const std::vector<Lines>& some, const std::vector<Lines>& all) {
    const auto is_there = [&](const Lines& row) { return std::find(all.begin(), all.end(), row) != all.end(); };
    return good ? static_cast<double>(std::count_if(some.begin(), some.end(), is_there)) / number_of(some) : 0;
  };
  const double precision = share(rows, right), recall = share(right, rows), sum = precision + recall;
  const double f1 = sum == 0 ? 0 : 2 * recall * precision / sum;
  return {{"f1", f1}, {"precision", precision}, {"recall", recall}, {"extraction_rate", good}};
}

Metrics path_traversal(Text reference, Text prediction) {
  const std::optional<std::string> route = tagged(prediction, "Route");
  const Lines right = split(strip(reference)), lines = split(route.value_or(""));
  const double reached = std::min({same_lines(lines, right) + 1, number_of(lines), number_of(right)});
  return route ? scores_of(lines == right, reached / number_of(right)) : scores_of(false, 0, false);
}

/// The beliefs in lines that begin with "-" (_extract_belief_content(), _normalize_tom()).
Lines beliefs_of(Text text) {
  constexpr Text kDropped = " on in at step thinks think believes believe is are of location know knows belief ";
  std::string all(text);
  for (const Text end : {"\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\u0085", "\u2028", "\u2029"})
    all = replaced(all, end, "\n");  // str.splitlines()
  Lines beliefs;
  bool first = true;
  for (const std::string& line : split(all)) {
    if (!strip(line).starts_with('-') || !(std::exchange(first, false) || line.starts_with('-'))) continue;
    const std::u32string words = code_points(normalise_answer(replaced(strip(line).substr(1), "’", "")));
    std::string kept;
    for (std::size_t at = 0, end = 0; at < words.size(); at = end) {
      while (end < words.size() && is_word(words[end]) == is_word(words[at])) ++end;
      const std::string part = to_utf8(words.substr(at, end - at));
      kept += kDropped.find(' ' + part + ' ') == Text::npos ? part : " ";
    }
    if (!strip(kept).empty()) beliefs.push_back(fmt::format("{}", fmt::join(split_words(kept), " ")));
  }
  return beliefs;
}

Metrics tom_tracking(Text reference, Text prediction) {
  const Lines right = beliefs_of(reference), lines = beliefs_of(prediction);
  return scores_of(lines == right, same_lines(lines, right) / std::max(1.0, number_of(right)));
}

std::int64_t int_of(Text text) {
  text = strip(text);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : INT64_MAX;
}

/// Whether three equations use up the numbers of "Initial number set: [1, 2, 3, 4], target: 5." and reach its target
/// (evaluate_countdown_final_solution()).
bool solves(Text problem, Text solution) {
  constexpr Text kOperators = "+-*/", kDigits = "0123456789";
  std::vector<std::int64_t> numbers;
  for (std::size_t at = 0, end = 0; (at = problem.find_first_of(kDigits, end)) != Text::npos && numbers.size() < 5;) {
    end = std::min(problem.find_first_not_of(kDigits, at), problem.size());
    numbers.push_back(int_of(problem.substr(at, end - at)));
  }
  const Lines equations = split(solution);
  if (numbers.size() < 5 || equations.size() != 3) return false;
  for (const std::string& equation : equations) {
    const Lines sides = split(equation, "=");
    const std::size_t op = kOperators.find_first_of(sides[0]);
    const Lines operands = split(sides[0], op == Text::npos ? "=" : kOperators.substr(op, 1));
    if (sides.size() != 2 || operands.size() != 2) return false;
    const std::int64_t a = int_of(operands[0]), b = int_of(operands[1]), result = int_of(sides[1]);
    for (const std::int64_t operand : {a, b}) {
      const auto found = std::find(numbers.begin(), numbers.end() - 1, operand);  // the target stays last
      if (found == numbers.end() - 1) return false;
      numbers.erase(found);
    }
    numbers.insert(numbers.begin(), result);
    const auto x = static_cast<double>(a), y = static_cast<double>(b);
    if ((op == 0 ? x + y : op == 1 ? x - y : op == 2 ? x * y : x / y) != static_cast<double>(result)) return false;
  }
  return numbers.front() == numbers.back();
}

Metrics countdown(Text reference, Text prediction) {
  constexpr Text kHead = "# Search Procedure";
  const Lines right = split(strip(split(split(reference, kHead).back(), "Now we have found the target")[0]));
  const Lines lines = split(strip(split(prediction, kHead).back()));
  const std::optional<std::string> solution = tagged(prediction, "Solution");
  if (solution && solves(right[0], *solution)) return scores_of(true, 1);
  if (prediction.find(kHead) == Text::npos || lines[0] != right[0]) return scores_of(false, 0, solution.has_value());
  const auto drops = [](Text line) { return line.find("drop this branch") != Text::npos; };
  const auto same = [&](Text line, Text known) {  // results may differ where both go on or both drop a branch
    return line == known ||
           (known.find("|- Try") != Text::npos && line.substr(0, line.find('=')) == known.substr(0, known.find('=')) &&
            drops(line) == drops(known));
  };
  const double reached = std::min({same_lines(lines, right, same), number_of(lines) - 1, number_of(right) - 1});
  return scores_of(false, (reached - 1) / (number_of(right) - 1), solution.has_value());
}

struct Kind {
  const char* name;
  Metrics (*scores)(Text reference, Text prediction);
  const char* reference;  // a whole answer's field
  Lines texts;            // in the prompt
};
const std::vector<Kind> kKinds = {
    {"html_to_tsv",
     html_to_tsv,
     "gt",
     {"html_str", "task_topic", "task_description", "filtering_instruction", "tsv_header"}},
    {"path_traversal", path_traversal, "answer_nl", {"city_context", "src_city", "dst_city"}},
    {"tom_tracking", tom_tracking, "solution", {"story", "question"}},
    {"countdown", countdown, "demonstration", {"nums", "target"}}};

/// As Python's open() reads it.
std::string read_text(const fs::path& file) {
  return replaced(replaced(read_file(file), "\r\n", "\n"), "\r", "\n");
}

Json read_samples(const fs::path& file) {
  Json samples = parse_json(read_file(file, kMostOfData), file.string());
  if (!samples.is_array() || samples.empty()) throw_input_error("{} must hold a list of samples.", file.string());
  return samples;
}

/// A field as Python prints it. Upstream writes countdown's searches with other marks than its files have.
std::string text_of(const Json& sample, const std::string& name, const std::string& where) {
  const std::string field = name == "html_str"       ? "html_path"
                            : name == "city_context" ? "context_nl"
                            : name == "src_city"     ? "question_repr/0"
                            : name == "dst_city"     ? "question_repr/1"
                                                     : name;
  const Json::json_pointer place('/' + field);
  if (!sample.contains(place)) throw_input_error("{}: '{}' is missing.", where, field);
  if (!sample[place].is_string()) return replaced(json_text(sample[place]), ",", ", ");
  const std::string text = replaced(sample[place].get<std::string>(), "<Search Procedure>", "# Search Procedure");
  return replaced(text, "\n</Search Procedure>", "");
}

/// The two samples that upstream's loader puts into countdown's prompt.
std::string read_examples(const fs::path& folder) {
  Lines examples;
  for (const fs::path& file : {folder / "countdown_0.5k.json", folder / "countdown_8k.json"}) {
    for (const Json& sample : read_samples(file)) {
      const std::string nums = text_of(sample, "nums", file), target = text_of(sample, "target", file);
      if (nums != "[40, 19, 23, 7]" && nums != "[9, 16, 6, 18]") continue;
      examples.push_back(fmt::format("# Example\nNumbers: {}\nTarget: {}\n\n{}", nums, target,
                                     text_of(sample, "demonstration", file)));
    }
  }
  if (examples.size() != 2)
    throw_input_error("{}: the prompt's two examples are not in countdown_0.5k and _8k.", folder.string());
  return fmt::format("{}", fmt::join(examples, "\n\n"));
}

PromptFile read_task(const fs::path& folder, const Kind& kind, const std::string& file) {
  constexpr Text kField = "USER_PROMPT: |-\n";  // a block of YAML, which two spaces indent
  const std::string prompts = (folder / "prompts.yaml").string(), yaml = read_text(prompts);
  if (!yaml.starts_with(kField)) throw_input_error("{} must begin with 'USER_PROMPT: |-'.", prompts);
  std::string prompt = replaced(yaml.substr(kField.size() - 1), "\n  ", "\n");
  prompt = prompt.substr(1, prompt.find_last_not_of('\n'));
  const std::string examples = kind.scores == countdown ? read_examples(folder) : "";
  PromptFile read;
  for (const Json& sample : read_samples(file)) {
    const std::string where = fmt::format("{}, sample {}", file, read.samples.size() + 1);
    fmt::dynamic_format_arg_store<fmt::format_context> texts;
    texts.push_back(fmt::arg("demonstration", examples));
    for (const std::string& name : kind.texts) {
      const std::string text = text_of(sample, name, where);
      texts.push_back(fmt::arg(name.c_str(), name == "html_str" ? read_text(folder / text) : text));
    }
    try {
      read.samples.push_back({fmt::vformat(prompt, texts), text_of(sample, kind.reference, where)});
    } catch (const fmt::format_error& error) {
      throw_input_error("{}: {}.", prompts, error.what());
    }
    read.hash = mix64(mix64(read.hash ^ fnv1a64(read.samples.back().prompt)) ^ fnv1a64(read.samples.back().reference));
  }
  return read;
}

Lines task_names() {
  Lines names;
  for (const Kind& kind : kKinds)
    for (const char* length : {"0.5k", "2k", "8k"}) names.push_back(fmt::format("{}_{}", kind.name, length));
  return names;
}

const Kind& kind_of(Text task) {
  const auto kind =
      std::find_if(kKinds.begin(), kKinds.end(), [&](const Kind& one) { return task.starts_with(one.name); });
  TANDEM_CHECK(kind != kKinds.end(), "LongProc has no '{}'", task);
  return *kind;
}

}  // namespace

void check_longproc_task(const std::string& task) {
  const Lines known = task_names();
  if (std::find(known.begin(), known.end(), task) == known.end())
    throw_input_error("--tasks: '{}' is none of {}.", task, fmt::join(known, ", "));
}

std::map<std::string, PromptFile> read_longproc(const fs::path& checkout, std::vector<std::string>& tasks) {
  const auto file_of = [&](Text task) {
    const Text kind = task.substr(0, task.rfind('_'));
    return checkout / "data" / kind / fmt::format("{}.json", task);
  };
  if (tasks.empty())
    for (const std::string& task : task_names())
      if (path_exists(file_of(task))) tasks.push_back(task);
  if (tasks.empty())
    throw_input_error("--data: '{}' has no data/countdown/countdown_2k.json, or another file of LongProc's.",
                      checkout.string());
  std::map<std::string, PromptFile> files;
  for (const std::string& task : tasks) {
    check_longproc_task(task);
    const fs::path file = file_of(task);
    files[task] = read_task(file.parent_path(), kind_of(task), file.string());
    files[task].max_new_tokens = task.ends_with("0.5k") ? 1024 : task.ends_with("2k") ? 3072 : 9216;
  }
  return files;
}

Metrics longproc_scores(Text task, Text reference, Text prediction) {
  return kind_of(task).scores(reference, prediction);
}

}  // namespace tandem::eval
