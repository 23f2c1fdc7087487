#include "eval/ruler/ruler.h"

#include <algorithm>
#include <array>
#include <unordered_set>

#include "engine/common/error.h"
#include "eval/ruler/wording.h"

namespace tandem::eval {
namespace {

using Haystack = RulerTask::Haystack;
using Kind = RulerTask::Kind;

// round(linspace(0, 100, 40)) with ties to even, as upstream's NumPy computes it: per cent of the haystack.
constexpr std::array<std::uint32_t, 40> kDepths = {0,  3,  5,  8,  10, 13, 15, 18, 21, 23, 26, 28, 31, 33,
                                                   36, 38, 41, 44, 46, 49, 51, 54, 56, 59, 62, 64, 67, 69,
                                                   72, 74, 77, 79, 82, 85, 87, 90, 92, 95, 97, 100};

const std::string& type_word(const RulerWording& wording, Kind kind) {
  return wording.types[kind == Kind::numbers ? 0 : kind == Kind::words ? 1 : 2].second;
}

std::string random_text(const RulerWording& wording, Kind kind, Random& random) {
  if (kind == Kind::numbers) return random_number(random);
  return kind == Kind::uuids ? random_uuid(random) : random_key(wording, random);
}

/// Everything of one sample but the number of haystack sentences. Sentences are drawn from their own stream, so that
/// the haystack of n sentences is the beginning of the haystack of n + 1: the fit searches over one fixed text.
class Draft {
 public:
  Draft(const RulerTask& task, std::uint32_t length, std::uint32_t index, std::uint64_t seed)
      : task_(task), wording_(ruler_wording()), hay_(stream(task, length, index, seed, 1)) {
    Random random(stream(task, length, index, seed, 0));
    std::unordered_set<std::string> values;
    while (needles_.size() < task.keys) {
      std::string key = random_text(wording_, task.key, random), value = random_text(wording_, task.value, random);
      // Upstream lets keys and values repeat; then a question has two answers, or a wrong one is counted as right.
      if (keys_.contains(key) || values.contains(value)) continue;
      keys_.insert(key);
      values.insert(value);
      needles_.push_back({line(key, value), key, value});
    }
    asked_ = random.below(task.keys);
    forbidden_value_ = needles_[asked_].value;
    std::array<std::uint32_t, kDepths.size()> depths = kDepths;
    for (std::size_t i = 0; i < needles_.size(); ++i) {
      std::swap(depths[i], depths[i + random.below(depths.size() - i)]);
      needles_[i].percent = depths[i];
      needles_[i].position = random.next();
    }
    order_.resize(needles_.size());
    for (std::size_t i = 0; i < order_.size(); ++i) order_[i] = i;
    std::sort(order_.begin(), order_.end(),
              [&](std::size_t a, std::size_t b) { return needles_[a].percent < needles_[b].percent; });
  }

  /// Prompt with `n` haystack sentences; `depth` as RulerSample::depth.
  std::string prompt(std::uint32_t n, double* depth = nullptr) {
    while (units_.size() < n) units_.push_back(next_unit());
    const std::string_view type = type_word(wording_, task_.value);
    std::string text = fill(wording_.intro, {{"type", type}});
    text += '\n';
    const std::size_t begin = text.size();
    std::size_t asked_at = begin, next = 0;
    for (std::uint32_t i = 0; i <= n; ++i) {
      for (; next < order_.size() && place(needles_[order_[next]], n) <= i; ++next) {
        if (text.size() > begin) text += ' ';
        if (order_[next] == asked_) asked_at = text.size();
        text += needles_[order_[next]].line;
      }
      if (i == n) break;
      if (text.size() > begin) text += ' ';
      text += units_[i];
    }
    const std::size_t room = text.size() - begin - needles_[asked_].line.size();
    if (depth != nullptr) *depth = room == 0 ? 0.0 : static_cast<double>(asked_at - begin) / static_cast<double>(room);
    text += '\n';
    return text + fill(wording_.question_one, {{"type", type}, {"key", needles_[asked_].key}});
  }

  const std::string& answer() const { return needles_[asked_].value; }

 private:
  struct Needle {
    std::string line, key, value;
    std::uint32_t percent = 0;   // prose: one of the 40 depths
    std::uint64_t position = 0;  // noise, needles: uniform
  };

  static std::uint64_t stream(const RulerTask& task, std::uint32_t length, std::uint32_t index, std::uint64_t seed,
                              std::uint64_t which) {
    std::uint64_t state = mix64(seed ^ fnv1a64(task.name));
    state = mix64(state ^ (std::uint64_t{length} << 32 | index));
    return mix64(state + which);
  }

  std::string line(std::string_view key, std::string_view value) const {
    return fill(wording_.needle, {{"type", type_word(wording_, task_.value)}, {"key", key}, {"value", value}});
  }

  /// Haystack sentences before the needle: upstream takes int(n * depth / 100) for essays and a random line otherwise.
  std::uint32_t place(const Needle& needle, std::uint32_t n) const {
    if (task_.haystack == Haystack::prose) return static_cast<std::uint32_t>(std::uint64_t{n} * needle.percent / 100);
    return static_cast<std::uint32_t>(((needle.position >> 32) * (std::uint64_t{n} + 1)) >> 32);
  }

  std::string next_unit() {
    if (task_.haystack == Haystack::noise) return wording_.noise[units_.size() % wording_.noise.size()];
    if (task_.haystack == Haystack::prose) return random_prose(wording_, hay_);
    // Distractor keys are distinct while the words last; from half of all pairs on only the asked key is avoided.
    const std::size_t enough = wording_.nouns.size() * wording_.adjectives.size() / 2;
    for (;;) {
      std::string key = random_text(wording_, task_.key, hay_), value = random_text(wording_, task_.value, hay_);
      if (value == forbidden_value_ || key == needles_[asked_].key) continue;
      if (keys_.size() < enough && !keys_.insert(key).second) continue;
      return line(key, value);
    }
  }

  const RulerTask& task_;
  const RulerWording& wording_;
  Random hay_;
  std::vector<Needle> needles_;
  std::vector<std::size_t> order_;  // needles by depth
  std::size_t asked_ = 0;
  std::string forbidden_value_;
  std::unordered_set<std::string> keys_;
  std::vector<std::string> units_;
};

std::uint32_t count_prompt(Draft& draft, std::uint32_t units, const TokenCounter& count_tokens) {
  return count_tokens(draft.prompt(units));
}

RulerSample finish(const RulerTask& task, std::uint32_t length, std::uint32_t index, Draft& draft, std::uint32_t units,
                   std::uint32_t tokens) {
  RulerSample sample;
  sample.task = task.name;
  sample.length = length;
  sample.index = index;
  sample.prompt = draft.prompt(units, &sample.depth);
  sample.answers = {draft.answer()};
  sample.prompt_tokens = tokens;
  sample.max_new_tokens = ruler_max_new_tokens(length);
  sample.haystack_units = units;
  return sample;
}

/// Tokens that sample `index` needs at `length` without any haystack.
std::uint64_t least(const RulerTask& task, std::uint32_t length, std::uint32_t index, std::uint64_t seed,
                    const TokenCounter& count_tokens) {
  Draft draft(task, length, index, seed);
  return std::uint64_t{count_prompt(draft, 0, count_tokens)} + ruler_max_new_tokens(length);
}

/// A length at which samples 0 .. last fit. Keys differ from length to length, so the length is raised until it is
/// enough.
[[noreturn]] void too_short(const RulerTask& task, std::uint32_t length, std::uint32_t last, std::uint64_t seed,
                            const TokenCounter& count_tokens) {
  std::uint64_t enough = length;
  for (int round = 0; round < 100; ++round) {
    std::uint64_t needed = 0;
    for (std::uint32_t i = 0; i <= last; ++i)
      needed = std::max(needed, least(task, static_cast<std::uint32_t>(enough), i, seed, count_tokens));
    if (needed <= enough || needed > kMaxRulerLength) break;
    enough = needed;
  }
  throw_input_error(
      "The length {} is too short for {}: its needles, its question and {} generated tokens do not fit. The smallest "
      "possible length is {} tokens with this tokenizer.",
      length, task.name, ruler_max_new_tokens(length), enough);
}

RulerSample fit(const RulerTask& task, std::uint32_t length, std::uint32_t index, std::uint64_t seed,
                const TokenCounter& count_tokens, std::uint32_t last) {
  if (length > kMaxRulerLength)
    throw_input_error("The length {} is larger than {} tokens, the largest that RULER tasks are made for.", length,
                      kMaxRulerLength);
  const std::uint32_t reserved = ruler_max_new_tokens(length);
  Draft draft(task, length, index, seed);
  const std::uint32_t base = count_prompt(draft, 0, count_tokens);
  if (std::uint64_t{base} + reserved > length) too_short(task, length, last, seed, count_tokens);
  const std::uint32_t budget = length - reserved;
  // Invariant: `low` sentences fit, `high` do not, so the result is a boundary even where tokens do not grow with every
  // sentence. A probe tokenizes the whole prompt: three guesses from the mean tokens per sentence, then doubling steps,
  // take 6 to 12 probes at 128K, where bisection alone takes 18.
  std::uint32_t low = 0, high = budget + 1, low_tokens = base;
  std::uint64_t guess = 16;
  const auto probe = [&](std::uint64_t wanted) {
    const std::uint32_t units = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(wanted, low + 1, high - 1));
    const std::uint32_t tokens = count_prompt(draft, units, count_tokens);
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
  return finish(task, length, index, draft, low, low_tokens);
}

}  // namespace

const std::vector<RulerTask>& ruler_tasks() {
  static const std::vector<RulerTask> tasks = {
      {"niah_single_1", "one number in repeated noise", Haystack::noise, Kind::words, Kind::numbers, 1},
      {"niah_single_2", "one number in prose", Haystack::prose, Kind::words, Kind::numbers, 1},
      {"niah_single_3", "one UUID in prose", Haystack::prose, Kind::words, Kind::uuids, 1},
      {"niah_multikey_1", "one of four numbers in prose", Haystack::prose, Kind::words, Kind::numbers, 4},
      {"niah_multikey_2", "one number among needles only", Haystack::needles, Kind::words, Kind::numbers, 1},
      {"niah_multikey_3", "one UUID among needles with UUID keys", Haystack::needles, Kind::uuids, Kind::uuids, 1},
  };
  return tasks;
}

const RulerTask& find_ruler_task(std::string_view name) {
  std::vector<std::string> names;
  for (const RulerTask& task : ruler_tasks()) {
    if (task.name == name) return task;
    names.push_back(task.name);
  }
  names.insert(names.end(), {"niah", "single", "multikey", "all"});
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
    const std::string_view item = list.substr(begin, end - begin);
    if (item == "all" || item == "niah" || item == "single" || item == "multikey") {
      for (const RulerTask& task : ruler_tasks())
        if (item == "all" || task.name.find(item) != std::string::npos) add(task.name);
    } else {
      add(find_ruler_task(item).name);
    }
    begin = end + 1;
  }
  return result;
}

std::uint32_t ruler_max_new_tokens(std::uint32_t length) {
  return length < 1024 ? 48 : 128;
}

RulerSample make_ruler_sample(std::string_view task, std::uint32_t length, std::uint32_t index, std::uint64_t seed,
                              const TokenCounter& count_tokens) {
  return fit(find_ruler_task(task), length, index, seed, count_tokens, index);
}

std::vector<RulerSample> make_ruler_samples(std::string_view task, std::uint32_t length, std::uint32_t count,
                                            std::uint64_t seed, const TokenCounter& count_tokens) {
  const RulerTask& found = find_ruler_task(task);
  if (count == 0) throw_input_error("The number of samples of {} must be 1 or more, but is 0.", found.name);
  std::vector<RulerSample> samples;
  for (std::uint32_t i = 0; i < count; ++i) samples.push_back(fit(found, length, i, seed, count_tokens, count - 1));
  return samples;
}

RulerSample make_ruler_sample_with(std::string_view task, std::uint32_t length, std::uint32_t index, std::uint64_t seed,
                                   const TokenCounter& count_tokens, std::uint32_t units) {
  const RulerTask& found = find_ruler_task(task);
  Draft draft(found, length, index, seed);
  const std::uint32_t tokens = count_prompt(draft, units, count_tokens);
  return finish(found, length, index, draft, units, tokens);
}

std::string ruler_protocol_id(const RulerProtocol& protocol) {
  const RulerWording& wording = ruler_wording();
  return fmt::format(
      "ruler/embedded-v1+essay:prose+wording:{}+words:{}+tok:{}+template:{}+fit:bos+prompt+gen128(48<1024)"
      "+score:string-match-all+{}",
      wording.wording_hash, wording.words_hash, protocol.tokenizer_hash.empty() ? "unknown" : protocol.tokenizer_hash,
      protocol.chat_template, protocol.query_aware ? "query-aware" : "context-only");
}

}  // namespace tandem::eval
