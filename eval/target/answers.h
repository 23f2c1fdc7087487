// What the answers of a sweep's methods lose, measured by a run: a method that keeps little of the context is fast and
// may answer badly, so that "the fastest" alone is no advice.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "engine/model/model.h"
#include "eval/report/statistics.h"
#include "eval/report/table.h"

namespace tandem::eval {

/// Of a method's loss beside the margin, by its 95 % interval.
enum class Standing : std::uint8_t {
  within,       // the interval ends below the margin, or the method loses nothing by design
  beyond,       // the interval begins above it
  cannot_tell,  // else: the run has too few samples
  not_measured  // the run does not have the method
};
const char* to_string(Standing standing);  // "within", "beyond", "cannot tell", "not measured"

struct MethodAnswers {
  std::string method;       // the sweep's spec
  std::string measured_as;  // the run's label of it; empty where it was not measured
  bool lossless = false;
  Standing standing = Standing::not_measured;
  Estimate score;  // mean over samples, in [0, 1]; only where it was measured
  Estimate loss;   // the baseline's score minus this one's on the same samples; n 0 for the baseline itself
};

struct Answers {
  std::string run;                     // the folder, as it was given
  std::string of;                      // "ruler with deep, 6 tasks at 1K and 2K"
  std::string baseline;                // the run's first method
  double margin = 0;                   // a share of 1
  std::vector<std::uint32_t> lengths;  // of the run's prompts, tokens; empty where they are as long as they are
  std::vector<MethodAnswers> methods;  // in the sweep's order

  /// Standing::not_measured for a method that it does not have.
  Standing of_method(const std::string& method) const;
};

/// Whether a method loses nothing at this shape, with its options as given. False for one that refuses the shape.
bool is_lossless(const std::string& spec, const Model& shape);

/// What `run`, a folder of compare or eval, says of these methods. A method is the run's one of the same name and
/// options, defaults spelled out; options that only stand in for others where a shape is simulated
/// (MethodInfo::for_simulated_shapes) may differ. InputError for a folder that holds no finished run with scores, whose
/// first method, which losses are measured against, loses something itself, or that has none of the methods.
Answers read_answers(const std::filesystem::path& run, const std::vector<std::string>& methods, const Model& shape,
                     double margin);

/// "1 point", "0.5 points".
std::string points_text(double share);
/// Score, loss and standing of each method.
Table answers_table(const Answers& answers);
/// How that is to be read, at these contexts: sentences.
std::vector<std::string> answers_notes(const Answers& answers, std::span<const std::uint32_t> contexts);

nlohmann::ordered_json answers_json(const Answers& answers);
/// What answers_json() wrote; InputError beginning with `where`.
Answers parse_answers(const nlohmann::ordered_json& json, const std::string& where);

}  // namespace tandem::eval
