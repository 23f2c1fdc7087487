// RULER's post-processing and scores (NVIDIA/RULER scripts/eval: evaluate.py and synthetic/constants.py).
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tandem::eval {

/// Upstream's postprocess_pred: strip, every control character U+0000..U+001F becomes a newline, strip. "Strip" removes
/// what Python's str.strip() removes, Unicode spaces included; bytes that are no valid UTF-8 are kept as they are.
std::string postprocess_prediction(std::string_view prediction);

/// Share of `references` that occur in `prediction`, upper and lower case alike: string_match_all of one sample, in
/// [0, 1]. No word boundary is asked for: "12" is found in "1234", as upstream.
/// Both are lowered as Python's str.lower() does (python_text.h); in both, bytes that are no valid UTF-8 are U+FFFD, as
/// in the texts that upstream's tokenizers decode. No references: 0 (upstream divides by zero).
double string_match_all(std::string_view prediction, std::span<const std::string> references);

/// 1 if any reference occurs in `prediction`, else 0: string_match_part of one sample (QA tasks).
double string_match_part(std::string_view prediction, std::span<const std::string> references);

}  // namespace tandem::eval
