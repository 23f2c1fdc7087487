// Measured points: times and rates of named hardware with their conditions and source
// (hardware/validation/points.json, and any file of that form).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::eval {

struct MeasuredPoint {
  std::string id, kind, hardware, metric, unit, source;
  std::string engine, model, model_shape, precision, submission, note;  // empty: not said
  double value = 0;                                                     // in `unit`, above 0
  std::optional<double> batch;                                          // sequences, or rows of a product
  std::optional<double> context;  // KV tokens of each sequence; the mean where the text of a source has a range
  std::string context_text;       // a context that could not be read as a number
  std::optional<double> tokens, prefix_tokens, prompt_tokens, generated_tokens, transfer_bytes, descriptors;
  std::uint32_t gpus = 1;
};

/// The object's list "points". InputError naming the file, the point and the field: for text that is not such an
/// object, a missing or empty id, kind, hardware, unit or source, an id that occurs twice, a value that is not above 0
/// and a number that no such measurement has. Fields that it does not know are ignored.
std::vector<MeasuredPoint> parse_points(std::string_view text, const std::string& file);

enum class UnitKind : std::uint8_t { time, tokens_per_second, bytes_per_second, other };
UnitKind unit_kind(const MeasuredPoint& point);

/// Nanoseconds of a point whose unit is a time: ns, us, ms or s, also "per layer", "per token", "per transfer" and "per
/// call".
std::optional<double> nanoseconds(const MeasuredPoint& point);

/// "32 query heads, 8 KV heads, head_dim 128 (...)", "... (32/8 heads, d 128)".
struct HeadShape {
  std::uint32_t q_heads = 0, kv_heads = 0, head_dim = 0;
};
std::optional<HeadShape> head_shape(const MeasuredPoint& point);

/// Outputs and inputs of a product: "N=4096 K=16384", or the layer that `metric` names of a known model.
struct MatrixShape {
  std::uint64_t outputs = 0, inputs = 0;
};
std::optional<MatrixShape> matrix_shape(const MeasuredPoint& point);

/// The preset (engine/model/presets.h) that a model's name means; empty: none.
std::string preset_of(std::string_view model);

}  // namespace tandem::eval
