#include "eval/ruler_tasks/ruler.h"

#include <algorithm>
#include <array>

#include "engine/common/error.h"
#include "engine/common/trimmed.h"
#include "eval/ruler_tasks/draft.h"
#include "eval/scoring/string_match.h"

namespace tandem::eval {
namespace {

using Family = RulerTask::Family;
using Haystack = RulerTask::Haystack;
using Kind = RulerTask::Kind;

std::uint32_t count_prompt(Draft& draft, std::uint32_t units, const TokenCounter& count_tokens) {
  return count_tokens(draft.prompt(units, nullptr));
}

/// Tokens that a sample needs without any haystack.
std::uint64_t least(const DraftSeed& seed, const TokenCounter& count_tokens) {
  return std::uint64_t{count_prompt(*make_draft(seed), 0, count_tokens)} +
         ruler_max_new_tokens(*seed.task, seed.length);
}

/// Names a length at which samples 0 .. last fit. Keys differ from length to length, so the length is raised until it
/// is enough.
[[noreturn]] void too_short(DraftSeed seed, std::uint32_t last, const TokenCounter& count_tokens) {
  const std::uint32_t length = seed.length;
  std::uint64_t enough = length;
  for (int round = 0; round < 100; ++round) {
    std::uint64_t needed = 0;
    seed.length = static_cast<std::uint32_t>(enough);
    for (seed.index = 0; seed.index <= last; ++seed.index) needed = std::max(needed, least(seed, count_tokens));
    if (needed <= enough || needed > kMaxRulerLength) break;
    enough = needed;
  }
  throw_input_error(
      "The length {} is too short for {}: what is asked for, the question and {} generated tokens do not fit. With "
      "this tokenizer {} tokens are enough.",
      length, seed.task->name, ruler_max_new_tokens(*seed.task, length), enough);
}

void check_length(std::uint32_t length) {
  if (length > kMaxRulerLength)
    throw_input_error("The length {} is larger than {} tokens, the largest that RULER tasks are made for.", length,
                      kMaxRulerLength);
}

RulerTask task_of(std::string_view name, const std::optional<std::uint32_t>& percent) {
  RulerTask task = find_ruler_task(name);
  task.percent = percent;
  return task;
}

/// `last`: of the samples that a length must be enough for.
RulerSample fit(const DraftSeed& seed, std::uint32_t last, const TokenCounter& count_tokens) {
  check_length(seed.length);
  const RulerTask& task = *seed.task;
  const std::uint32_t reserved = ruler_max_new_tokens(task, seed.length);
  const auto made = make_draft(seed);
  Draft& draft = *made;
  const std::uint32_t base = count_prompt(draft, 0, count_tokens);
  if (std::uint64_t{base} + reserved > seed.length) too_short(seed, last, count_tokens);
  const std::uint32_t budget = seed.length - reserved;
  // Invariant: `low` sentences fit, `high` do not, so the result is a boundary even where tokens do not grow with every
  // sentence. A probe tokenizes the whole prompt: three guesses from the mean tokens per sentence, then doubling steps,
  // take 6 to 12 probes at 128K, where bisection alone takes 18.
  std::uint32_t low = 0, high = budget + 1, low_tokens = base;
  std::uint64_t guess = 16;
  const auto probe = [&](std::uint64_t wanted) {
    const std::uint32_t units = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(wanted, low + 1, high - 1));
    const std::uint32_t tokens = count_prompt(draft, units, count_tokens);
    if (tokens <= budget && units >= budget && seed.texts->essays != nullptr && task.haystack == Haystack::prose) {
      throw_input_error(
          "The words of the essays have less than one token each with this tokenizer, so they fill no length: give "
          "natural text.");
    }
    TANDEM_CHECK(tokens > budget || units < budget, "the token counter counts less than one token per sentence");
    guess = std::uint64_t{budget - base} * units / std::max<std::uint64_t>(1, tokens > base ? tokens - base : 0);
    if (tokens > budget) {
      high = units;
      return false;
    }
    low = units;
    low_tokens = tokens;
    return true;
  };
  bool fits = true;
  for (int i = 0; i < 3 && low + 1 < high; ++i) fits = probe(guess);
  for (std::uint32_t step = 1; low + 1 < high; step *= 2) {  // to the boundary's other side
    const std::uint64_t next = fits ? std::uint64_t{low} + step : high - std::min(high, step);
    if (probe(next) != fits) break;
  }
  while (low + 1 < high) probe(low + (high - low) / 2);
  RulerSample sample;
  sample.index = seed.index;
  sample.prompt = draft.prompt(low, &sample.depth);
  sample.answers = draft.answers();
  sample.prompt_tokens = low_tokens;
  sample.max_new_tokens = reserved;
  sample.haystack_units = low;
  return sample;
}

}  // namespace

std::unique_ptr<Draft> make_draft(const DraftSeed& seed) {
  constexpr std::array kOfFamily = {draft_needles, draft_chains, draft_common, draft_frequent, draft_questions};
  return kOfFamily[static_cast<std::size_t>(seed.task->family)](seed);
}

Random DraftSeed::stream(std::uint64_t which) const {
  // Hashed before the depth is added: otherwise neighbouring seeds would share samples, one's at a depth being the
  // other's at another.
  const std::uint64_t own = task->percent ? mix64(mix64(seed) + *task->percent) : seed;
  std::uint64_t state = mix64(own ^ fnv1a64(task->name));
  state = mix64(state ^ (std::uint64_t{length} << 32 | index));
  return Random(mix64(state + which));
}

std::string scatter(const std::vector<std::string>& sentences, std::size_t count, const std::vector<std::string>& lines,
                    const std::vector<std::uint32_t>& places, std::vector<std::size_t>* starts) {
  std::string text;
  const auto append = [&text](const std::string& part) {
    if (!text.empty()) text += ' ';
    text += part;
    return text.size() - part.size();
  };
  std::size_t next = 0;
  for (std::size_t i = 0; i <= count; ++i) {
    for (; next < lines.size() && places[next] <= i; ++next) {
      const std::size_t start = append(lines[next]);
      if (starts != nullptr) starts->push_back(start);
    }
    if (i < count) append(sentences[i]);
  }
  TANDEM_CHECK(next == lines.size(), "{} of {} lines placed", next, lines.size());
  return text;
}

const std::vector<RulerTask>& ruler_tasks() {
  using enum RulerTask::Haystack;
  const auto needle = [](const char* name, Haystack haystack, Kind key, Kind value, std::uint32_t keys,
                         std::uint32_t values = 1, std::uint32_t queries = 1) {
    return RulerTask{name, Family::needles, haystack, key, value, keys, values, queries};
  };
  const auto other = [](const char* name, Family family, std::uint32_t hops = 1) {
    return RulerTask{.name = name, .family = family, .hops = hops};
  };
  static const std::vector<RulerTask> tasks = {
      needle("niah_single_1", noise, Kind::words, Kind::numbers, 1),
      needle("niah_single_2", prose, Kind::words, Kind::numbers, 1),
      needle("niah_single_3", prose, Kind::words, Kind::uuids, 1),
      needle("niah_multikey_1", prose, Kind::words, Kind::numbers, 4),
      needle("niah_multikey_2", needles, Kind::words, Kind::numbers, 1),
      needle("niah_multikey_3", needles, Kind::uuids, Kind::uuids, 1),
      needle("niah_multivalue", prose, Kind::words, Kind::numbers, 1, 4),
      needle("niah_multiquery", prose, Kind::words, Kind::numbers, 4, 1, 4),
      other("vt", Family::chains),
      other("cwe", Family::common_words),
      other("fwe", Family::frequent_words),
      other("qa_1", Family::facts),
      other("qa_2", Family::facts, 2),
  };
  return tasks;
}

const RulerTask& find_ruler_task(std::string_view name) {
  std::vector<std::string> names;
  for (const RulerTask& task : ruler_tasks()) {
    if (task.name == name) return task;
    names.push_back(task.name);
  }
  names.insert(names.end(), {"niah", "single", "multikey", "qa", "all"});
  throw_input_error("There is no RULER task '{}' in the embedded source.{} Known tasks and groups are {}.", name,
                    did_you_mean(name, names), join_names(names));
}

std::vector<std::string> expand_ruler_tasks(std::string_view list) {
  std::vector<std::string> result;
  const auto add = [&](const std::string& name) {
    if (std::find(result.begin(), result.end(), name) == result.end()) result.push_back(name);
  };
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string_view item = trimmed(list.substr(begin, end - begin));
    if (item == "all" || item == "niah" || item == "single" || item == "multikey" || item == "qa") {
      for (const RulerTask& task : ruler_tasks())
        if (item == "all" || task.name.find(item) != std::string::npos) add(task.name);
    } else {
      add(find_ruler_task(item).name);
    }
    begin = end + 1;
  }
  return result;
}

std::uint32_t ruler_max_new_tokens(const RulerTask& task, std::uint32_t length) {
  return task.family == Family::needles && length < 1024 ? 48 : upstream_max_new_tokens(task);
}

std::uint32_t upstream_max_new_tokens(const RulerTask& task) {
  constexpr std::array<std::uint32_t, 5> kOfFamily = {128, 30, 120, 50, 32};
  return kOfFamily[static_cast<std::size_t>(task.family)];
}

double ruler_score(const RulerTask& task, std::string_view prediction, std::span<const std::string> answers) {
  return task.family == Family::facts ? string_match_part(prediction, answers) : string_match_all(prediction, answers);
}

const RulerTask& find_one_needle_task(std::string_view name) {
  std::vector<std::string> names;
  for (const RulerTask& task : ruler_tasks()) {
    if (task.family != Family::needles || task.values != 1 || task.queries != 1) continue;
    if (task.name == name) return task;
    names.push_back(task.name);
  }
  throw_input_error("'{}' is no task with one needle as its answer.{} There are {}.", name, did_you_mean(name, names),
                    join_names(names));
}

RulerSample make_ruler_sample(std::string_view task, std::uint32_t length, std::uint32_t index, std::uint64_t seed,
                              const TokenCounter& count_tokens, const RulerTexts& texts,
                              std::optional<std::uint32_t> percent) {
  const RulerTask made = task_of(task, percent);
  return fit({&made, length, index, seed, &texts}, index, count_tokens);
}

std::vector<RulerSample> make_ruler_samples(std::string_view task, std::uint32_t length, std::uint32_t count,
                                            std::uint64_t seed, const TokenCounter& count_tokens,
                                            const RulerTexts& texts) {
  const RulerTask& found = find_ruler_task(task);
  if (count == 0) throw_input_error("The number of samples of {} must be 1 or more, but is 0.", found.name);
  std::vector<RulerSample> samples;
  samples.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i)
    samples.push_back(fit({&found, length, i, seed, &texts}, count - 1, count_tokens));
  return samples;
}

void check_ruler_samples(std::string_view name, std::uint32_t length, std::uint32_t count, std::uint64_t seed,
                         const TokenCounter& count_tokens, const RulerTexts& texts,
                         std::optional<std::uint32_t> percent) {
  check_length(length);
  if (count == 0) return;
  const RulerTask task = task_of(name, percent);
  DraftSeed one{&task, length, count - 1, seed, &texts};
  make_draft(one);  // there are so many questions
  one.index = 0;
  // Made-up samples of a task differ by few tokens; questions of files, by whole paragraphs.
  const bool alike = task.family != Family::facts || (texts.squad == nullptr && texts.hotpot == nullptr);
  if (alike && 2 * least(one, count_tokens) <= length) return;
  for (; one.index < count; ++one.index)
    if (least(one, count_tokens) > length) too_short(one, count - 1, count_tokens);
}

}  // namespace tandem::eval
