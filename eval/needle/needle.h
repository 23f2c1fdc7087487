// A needle in a haystack by its depth and the context's length, as a dataset (eval/run/dataset.h): which of them a
// method finds where. Needles, haystacks, questions and scores are those of RULER's tasks with one needle
// (eval/ruler); here the depth is set, not drawn. A run's tasks are depths: "depth_30" has the needle behind 30 % of
// the haystack's sentences. Cells are independent of each other, and of which others a run has.
//
// The protocol id is that of RULER's task with where the needle is from:
//   needle/v2+task:niah_single_2+source:embedded-v4+<the other fields of eval/ruler/protocol.h>
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/model.h"
#include "eval/report/schema.h"
#include "eval/ruler/ruler.h"
#include "eval/run/dataset.h"
#include "eval/scoring/string_match.h"

namespace tandem::eval {

struct NeedleOptions {
  std::string task = "niah_single_2";
  std::vector<std::uint32_t> depths;   // per cent, each once
  std::vector<std::uint32_t> lengths;  // tokens: prompt and answer
  std::uint32_t samples = 0;           // of each depth and length
  std::uint64_t seed = 0;
  std::string essays = {};  // file of `texts`
  RulerTexts texts = {};    // essays in place of invented prose
};

/// "depth_30" and back; InputError for another name.
std::string depth_task(std::uint32_t percent);
std::uint32_t depth_of_task(std::string_view task);

/// InputError for a task whose needle is not hidden in prose, so that essays have no place in it.
void check_hidden_in_prose(std::string_view task);

class Needle final : public Dataset {
 public:
  /// The model must outlive this. InputError for a task without one needle, a depth beyond 100 %, one that is given
  /// twice, and lengths that the model or the needle has no room for.
  Needle(NeedleOptions options, const Model& model);

  std::string name() const override { return kName; }
  std::vector<std::string> tasks() const override;  // depths
  std::vector<std::uint32_t> lengths() const override { return options_.lengths; }
  std::uint32_t samples_of(const std::string&) const override { return options_.samples; }
  std::uint64_t seed() const override { return options_.seed; }
  std::string protocol_id(const Manifest& manifest) const override;
  std::string arguments() const override;
  DatasetSample sample(const std::string& task, std::uint32_t length, std::uint32_t index) const override;
  std::string prediction(std::string text) const override { return postprocess_prediction(text); }
  Score score(const DatasetSample& sample, const std::string& prediction) const override;

  /// The longest prompt that samples of the longest length have.
  std::uint32_t longest_prompt() const override;
  /// The map in place of the tables by task, and of their plot.
  RunReport report(const RunFolder& folder) const override;

  static constexpr const char* kName = "needle";

 private:
  NeedleOptions options_;
  const Model& model_;
};

/// The map's sections behind those that every run has. For a terminal a cell is shaded by its recall.
std::string needle_report(const Summary& summary, bool markdown);

}  // namespace tandem::eval
