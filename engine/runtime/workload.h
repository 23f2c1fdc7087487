// A workload profile: figures of how heads choose blocks and tokens, from which score_process.h draws scores where no
// tensor is computed.
//
// A head's score of an item is normal, correlated with those of the other heads of its group and with its own one step
// earlier; the part that lasts turns evenly into another one over `turnover` steps, so that an old choice loses its
// worth. A token's mean attention weight is log-normal with mean 1 / n: exp(s z - s^2 / 2) / n, where z is the lasting
// part of its score and s the head's concentration; so the share of tokens above the mean weight is Phi(-s / 2). Not
// modelled: sinks, and that neighbours in the text tend to be chosen together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/runtime/plan.h"

namespace tandem {

struct HeadWorkload {
  double concentration = 0;  // s, of mean attention weights; 0: all tokens alike
  double group = 0;          // correlation of the scores of two heads of a group, in [0, 1]
  double step = 0;           // correlation of a head's scores at two adjacent steps but for the turnover, in [0, 1]
  double turnover = 0;       // steps after which nothing of the lasting part is left; 0: it lasts
};

struct Workload {
  std::string name;                               // for tables: "recorded on embedded", "published"
  std::string source;                             // where the figures come from
  std::vector<std::vector<HeadWorkload>> layers;  // [layer][query head] of the model it is from

  /// For a head of another shape: the layer at the same relative depth, the head at the same relative place.
  const HeadWorkload& at(const ModelShape& shape, std::uint32_t layer, std::uint32_t q_head) const;
};

/// A workload's file, or a target.json of `tandem compare --as`. InputError naming file, field and value otherwise.
Workload parse_workload(const std::string& text, const std::string& file);
std::string workload_to_json(const Workload& workload);

/// Concentration at which this share of tokens lies above the mean weight, and back. Shares above one half give 0.
double concentration_of(double share_above_mean);
double share_above_mean(double concentration);
/// Share of one head's best `fraction` of items that another one's best hold too, for scores of this correlation, and
/// back.
double overlap_of(double correlation, double fraction);
double correlation_of(double overlap, double fraction);

}  // namespace tandem
