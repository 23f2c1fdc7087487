// A needle in a haystack by its depth and the context's length, as a dataset (eval/run/dataset.h): which of them a
// method finds where. Needles, haystacks, questions and scores are those of RULER's tasks with one needle
// (eval/ruler); here the depth is set, not drawn. A run's tasks are depths: "depth_30" has the needle behind 30 % of
// the haystack's sentences. Cells are independent of each other, and of which others a run has.
//
// The protocol id is that of RULER's task with where the needle is from:
//   needle/v2+task:niah_single_2+source:embedded-v4+<the other fields of eval/ruler_tasks/protocol.h>
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "eval/ruler/ruler_dataset.h"

namespace tandem::eval {

struct NeedleOptions : RulerOptions {  // whose tasks follow from these
  std::string task = "niah_single_2";
  std::vector<std::uint32_t> depths;  // per cent, each once
};

/// "depth_30" and back; InputError for another name.
std::string depth_task(std::uint32_t percent);
std::uint32_t depth_of_task(std::string_view task);

/// InputError for a task whose needle is not hidden in prose, so that essays have no place in it.
void check_hidden_in_prose(std::string_view task);

class Needle final : public Ruler {
 public:
  /// The model must outlive this. InputError for a task without one needle, a depth beyond 100 %, one that is given
  /// twice, and lengths that the model or the needle has no room for.
  Needle(const NeedleOptions& options, const Model& model);

  std::string name() const override { return "needle"; }
  std::string protocol_id(const Manifest& manifest) const override;
  std::string arguments() const override;
  /// The map in place of the tables by task, and of their plot.
  RunReport report(const RunFolder& folder) const override;

 private:
  std::vector<std::uint32_t> depths_;
};

/// The map's sections behind those that every run has. For a terminal a cell is shaded by its recall.
std::string needle_report(const Summary& summary, bool markdown);

}  // namespace tandem::eval
