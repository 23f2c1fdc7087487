// What the predictor says of one query head (Fluxion, section 5.2).
#pragma once

#include "engine/kernels/head_features.h"  // kFeatures

namespace tandem {

struct HeadProperties {
  float budget = 1.0F;     // bgt_{h,0}: the least fraction of L_cpu at block size 1 that meets Eq. 2
  float slope = 0.0F;      // k_h: bgt_h(blk) = budget + slope * log2(blk)
  bool streaming = false;  // s_h: sinks and window alone meet tau
};

}  // namespace tandem
