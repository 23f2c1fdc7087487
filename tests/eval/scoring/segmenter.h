// Whether Chinese texts can be cut into words here: tests that need it are skipped where jieba is not installed.
#pragma once

#include "engine/common/error.h"
#include "eval/scoring/segment_chinese.h"

namespace tandem::testing {

inline bool has_segmenter() {
  static const bool has = [] {
    try {
      eval::require_segmenter();
      return true;
    } catch (const InputError&) {
      return false;
    }
  }();
  return has;
}

}  // namespace tandem::testing
