// RULER's 13 tasks (Hsieh et al. 2024, arXiv 2404.06654) from the embedded source: our own wording and words, no
// download. Task parameters (haystack, kind of key and value, number of keys, depths, generated tokens, scoring) are
// those of NVIDIA/RULER's scripts/synthetic.yaml; the texts are not, so scores compare methods with each other, not
// with published RULER tables. Upstream's essays are replaced by invented prose and its SQuAD and HotpotQA questions by
// questions on made-up facts, unless files are given (RulerTexts); vt and cwe have no worked example before the
// question; the protocol id says so.
//
// Prompt: intro, newline, context, newline, question; with questions of files blank lines between, and the intro again
// before the question, as upstream. The model continues with a space, the answer and its end-of-sequence token. A
// begin-of-sequence token is not part of the text.
//
// A sample depends on (seed, task, length, index) and the texts alone, so any subset of a run gives the same samples.
// The tokenizer decides only how many units of haystack fit.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eval/ruler_tasks/texts.h"

namespace tandem::eval {

/// Tokens that the model sees for this prompt: the count includes the begin-of-sequence token and, where a chat
/// template is used, the template.
using TokenCounter = std::function<std::uint32_t(std::string_view prompt)>;

struct RulerTask {
  enum class Family { needles, chains, common_words, frequent_words, facts };
  enum class Haystack { noise, prose, needles };
  enum class Kind { words, numbers, uuids };
  std::string name;
  Family family = Family::needles;
  // needles
  Haystack haystack = Haystack::noise;
  Kind key = Kind::words;
  Kind value = Kind::numbers;
  std::uint32_t keys = 1;                     // that are not part of the haystack
  std::uint32_t values = 1;                   // of each key: a needle each
  std::uint32_t queries = 1;                  // keys that are asked for
  std::optional<std::uint32_t> percent = {};  // of the haystack before the (first) asked needle; none: drawn
  // facts
  std::uint32_t hops = 1;  // facts that the answer follows from
};

/// The tasks of the embedded source, in upstream's order.
const std::vector<RulerTask>& ruler_tasks();

/// Throws InputError with the nearest name.
const RulerTask& find_ruler_task(std::string_view name);

/// Task names from a comma-separated list of tasks and groups ("niah", "single", "multikey", "qa", "all"), in the order
/// given, each once. Throws InputError for an unknown or empty name.
std::vector<std::string> expand_ruler_tasks(std::string_view list);

/// Tokens reserved for the answer and generated at most, as upstream. Needle tasks have 128 from a length of 1024 on;
/// below, where that would be most of the window, 48: the longest answer, a UUID of one token per character, needs 38
/// with its leading space and end token. Generation stops at the end token anyway.
std::uint32_t ruler_max_new_tokens(const RulerTask& task, std::uint32_t length);

/// Tokens to generate in upstream's own files.
std::uint32_t upstream_max_new_tokens(const RulerTask& task);

/// In [0, 1], as upstream: the share of the answers that the prediction contains; for qa whether it contains any.
double ruler_score(const RulerTask& task, std::string_view prediction, std::span<const std::string> answers);

inline constexpr std::uint32_t kMaxRulerLength = 4u << 20;  // tokens; larger is a typing error rather than a wish

struct RulerSample {        // prompt_tokens + max_new_tokens <= the length asked for
  std::uint32_t index = 0;  // in [0, count)
  std::string prompt;       // no begin-of-sequence token
  std::vector<std::string> answers;
  std::uint32_t prompt_tokens = 0;  // as the counter counts
  std::uint32_t max_new_tokens = 0;
  // Where the (first) asked needle, variable or document starts, in characters: 0 first, 1 last. Nothing where that is
  // not known (files) or the answer is spread over the text (cwe, fwe).
  std::optional<double> depth = {};
  std::uint32_t haystack_units = 0;  // sentences, words of essays, needles, rare words, 16 words or documents around it
};

/// One sample. `percent`: of the haystack's sentences (of essays: of its sentences, of noise and needles: of its lines)
/// that the asked needle stands behind, where the task has one needle as its answer; none: as upstream. Samples of
/// other depths have other needles and another text, so that those of several depths are independent. Throws InputError
/// for an unknown task, for a length in which not even the needles and the question fit (the sentence names a length
/// that is enough), and for more samples than a file has questions.
RulerSample make_ruler_sample(std::string_view task, std::uint32_t length, std::uint32_t index, std::uint64_t seed,
                              const TokenCounter& count_tokens, const RulerTexts& texts = {},
                              std::optional<std::uint32_t> percent = {});

/// A task whose answer is one needle's value: niah_single_* and niah_multikey_*. InputError for another, with these.
const RulerTask& find_one_needle_task(std::string_view name);

/// Samples 0 .. count - 1.
std::vector<RulerSample> make_ruler_samples(std::string_view task, std::uint32_t length, std::uint32_t count,
                                            std::uint64_t seed, const TokenCounter& count_tokens,
                                            const RulerTexts& texts = {});

/// Throws what making samples 0 .. count - 1 would throw, in much less time: no haystack is made.
void check_ruler_samples(std::string_view task, std::uint32_t length, std::uint32_t count, std::uint64_t seed,
                         const TokenCounter& count_tokens, const RulerTexts& texts = {},
                         std::optional<std::uint32_t> percent = {});

}  // namespace tandem::eval
