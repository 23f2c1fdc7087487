// What the answers of a sweep's methods lose, measured by a run: a method that keeps little of the context is fast and
// may answer badly, so that "the fastest" alone is no advice.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "engine/model/model.h"
#include "eval/report/json_fields.h"
#include "eval/report/statistics.h"
#include "eval/report/table.h"

namespace tandem::eval {

/// Of a method's loss beside the margin, by its 95 % interval.
enum class Standing : std::uint8_t {
  within,        // the interval ends at the margin or below, or the method loses nothing by design
  beyond,        // the interval begins above it
  cannot_tell,   // else: the run has too few samples
  not_measured,  // the run does not have the method
  elsewhere      // the run has it, at other lengths than this
};
const char* to_string(Standing standing);  // "within", "beyond", "cannot tell", "not measured", "measured elsewhere"

/// Of the prompts of one length.
struct AnswersAt {
  std::uint32_t length = 0;  // tokens; 0: of all prompts, which are as long as they are
  Estimate score;            // mean over samples, in [0, 1]
  Estimate loss;             // the baseline's score minus this one's on the same samples; n 0 for the baseline itself
};

struct MethodAnswers {
  std::string method;       // the sweep's spec
  std::string measured_as;  // the run's label of it; empty where it was not measured
  bool lossless = false;    // at the sweep's shape
  std::vector<AnswersAt> at;
};

struct Answers {
  std::string run;                          // the folder, as it was given
  std::string of;                           // "ruler, 6 tasks"
  std::string model;                        // the run's
  std::string baseline;                     // the run's first method
  double margin = 0;                        // a share of 1
  std::vector<std::uint32_t> lengths = {};  // of prompts, tokens; empty where they are as long as they are:
  std::uint32_t shortest = 0, longest = 0;  // then of all prompts
  std::vector<MethodAnswers> methods = {};  // in the sweep's order

  /// What was measured of a method for contexts of so many tokens: at that length or, where prompts are as long as they
  /// are, on all of them if there are shorter ones and longer ones. nullptr: nothing.
  const AnswersAt* find(const std::string& method, std::uint32_t context) const;
  Standing standing(const std::string& method, std::uint32_t context) const;
  /// Of figures of a method.
  Standing standing(const MethodAnswers& method, const AnswersAt& at) const;
};

/// Whether a method loses nothing at this shape, with its options as given. False for one that refuses the shape.
bool is_lossless(const std::string& spec, const Model& shape);

/// What `run`, a folder of compare or eval, says of these methods. A method is the run's one of the same name and
/// options, defaults spelled out, that read the same files; one that only stands in for a trained one where a shape is
/// simulated (MethodInfo::for_simulated_shapes) is the run's one that read a file in its place. InputError for a folder
/// that holds no finished run with scores, whose first method, which losses are measured against, loses something
/// itself, or that has none of the methods that lose something.
Answers read_answers(const std::filesystem::path& run, const std::vector<std::string>& methods, const Model& shape,
                     double margin);

/// "1 point", "0.5 points".
std::string points_text(double share);
/// Score and loss of each method by length, and whether it is within the margin.
Table answers_table(const Answers& answers);
/// How that is to be read by one who asks for these contexts of a model: sentences.
std::vector<std::string> answers_notes(const Answers& answers, const std::string& model,
                                       std::span<const std::uint32_t> contexts);

/// The fields of answers in a sweep's file.
void visit_answers(ObjectWriter& out, const Answers& answers);
void visit_answers(ObjectReader& in, Answers& answers);

}  // namespace tandem::eval
