// What Fluxion's predictor is to say of a head, measured: the budget that Eq. 2 asks for at each block size, how it
// grows with the block (Eq. 1), and whether the head streams (Fluxion sections 3.1, 3.2 and 5.2). With full attention
// at hand; no part of a decode step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "methods/fluxion/properties.h"

namespace tandem {

inline constexpr std::array<std::uint32_t, 5> kLabelBlocks = {1, 16, 32, 64, 128};  // tokens

/// Where the tokens that one query attends lie: sinks [0, sinks), host [sinks, window), local [window, prefill), all on
/// page borders but the last; new [prefill, tokens). All but the host's are on the device.
struct Segments {
  std::uint32_t sinks = 0, window = 0, prefill = 0, tokens = 0;
  std::uint32_t host() const { return window - sinks; }
  std::uint32_t device() const { return tokens - host(); }
};

/// A prompt of `prefill` tokens (those computed before the first decode step) and what was generated since, of `tokens`
/// together: `sinks` first tokens and the prompt's last `window` stay on the device, both rounded up to a page. A
/// prompt that fits into these has an empty host segment: sinks == window == prefill.
Segments fluxion_segments(std::uint32_t prefill, std::uint32_t tokens, std::uint32_t sinks = 64,
                          std::uint32_t window = 256);

/// Softmax attention over a part of the tokens. An empty one: 0 and -infinity.
struct AttentionPart {
  std::vector<double> o;  // [D]
  double lse = 0;
  double norm() const;
};

/// One query head over all tokens, in float64 but for the scores, which are the kernels'.
struct HeadAttention {
  AttentionPart sinks, host, local, fresh;  // fresh: new tokens
  AttentionPart device, full;               // sinks, local and fresh; everything
  std::vector<float> host_scores;           // [host], q.k / sqrt(D)
};

/// One layer's query heads at one position. Query head h uses KV head h / (q_heads / kv_heads).
struct LayerQuery {
  std::uint32_t q_heads = 0, kv_heads = 0, dim = 0;
  const float* q = nullptr;              // [Hq][D], after RoPE
  std::span<const float* const> keys;    // [Hkv] -> [tokens][D]
  std::span<const float* const> values;  // [Hkv] -> [tokens][D]
  Segments segments;
};

std::vector<HeadAttention> attend_heads(const LayerQuery& layer);  // [Hq]

/// What a layer's heads would attend in host memory, beside what they attended on the device.
struct HostQuery {
  std::uint32_t q_heads = 0, kv_heads = 0, dim = 0, tokens = 0;  // tokens: on the host
  const float* q = nullptr;                                      // [Hq][D], after RoPE
  const float *device_o = nullptr, *device_lse = nullptr;        // [Hq][D], [Hq]: all that the device holds
  std::span<const float*const> keys, values;                     // [Hkv] -> [tokens][D]
};
/// The same where attention over the device's tokens is known: sinks, local and fresh are empty. [Hq]
std::vector<HeadAttention> attend_host(const HostQuery& layer);

/// Quest digests of one KV head's host tokens at 16, 32, 64 and 128 tokens. Blocks count from the host segment's start.
class HostDigests {
 public:
  HostDigests(const float* host_keys /*[tokens][D]*/, std::uint32_t tokens, std::uint32_t dim);
  /// `block`: one of kLabelBlocks but 1.
  std::vector<float> scores(const float* q /*[D]*/, std::uint32_t block) const;

 private:
  struct Level {
    std::uint32_t blocks = 0;
    std::vector<float> low, high;  // [blocks][D]
  };
  std::uint32_t dim_;
  std::array<Level, kLabelBlocks.size() - 1> levels_;
};

/// When a selection of host tokens is good enough, sinks, window and new tokens always being attended.
///   fluxion  |o_h(bgt, blk) - o_h| <= tau max_h' |o_h'|, the largest output of the layer's heads (Eq. 2)
///   output   |o_h(bgt, blk) - o_h| <= tau |o_h|
///   score    at least a share `mass` of the attention is on what is attended
enum class BudgetPolicy : std::uint8_t { fluxion, output, score };
inline constexpr std::size_t kBudgetPolicies = 3;
inline constexpr std::array<std::string_view, kBudgetPolicies> kBudgetPolicyNames = {"fluxion", "output", "score"};

struct BudgetLimits {
  double tau = 0.10, mass = 0.95;
};

/// Which line through log2(blk) speaks for a head's measured budgets (Eq. 1).
///   measured  from the measured budget of single tokens, with the slope of the least-squares line over all of
///             kLabelBlocks (section 5.2)
///   cover     the line of the least sum over the block sizes that there are digests of, 16 to 128, that is nowhere
///             below a measured budget there: no head gets less than it needs
enum class BudgetLine : std::uint8_t { measured, cover };

/// One head under one policy.
struct HeadLabels {
  std::array<float, kLabelBlocks.size()> budgets{};  // shares of the host tokens, by kLabelBlocks
  bool streaming = false;                            // nothing of the host is needed; budgets are 0 then
  HeadProperties properties(BudgetLine line = BudgetLine::measured) const;

 private:
  HeadProperties cover() const;
};

using PolicyLabels = std::array<HeadLabels, kBudgetPolicies>;  // by BudgetPolicy

/// The head selects blocks by falling score (tokens by their own score, blocks by their digest's bound), ties to the
/// lower index. n blocks are a budget of min(1, n blk / L_cpu).
/// The error need not fall with every further block, so "least budget" has two readings. This is the least that is good
/// enough together with every larger one: what is predicted is never exact, and a budget that only two errors of
/// opposite sign make good is none. Only whether nothing at all suffices (streaming) is asked of n = 0 alone, because
/// such a head attends nothing of the host whatever larger budgets would do.
/// `largest_output`: max_h' |o_h'| over the layer. The host segment must not be empty.
/// Returns one for each of `limits`.
std::vector<PolicyLabels> label_head(const HeadAttention& head, const float* q /*[D]*/,
                                     const float* host_values /*[host][D]*/, const HostDigests& digests,
                                     std::span<const BudgetLimits> limits, double largest_output);

/// |o_h(bgt, blk) - o_h| where the head attends its best `chosen` blocks of `block` tokens (16, 32, 64 or 128).
double selection_error(const HeadAttention& head, const float* q, const float* host_values, const HostDigests& digests,
                       std::uint32_t block, std::uint32_t chosen);

/// All heads of the layer; `digests` by KV head.
std::vector<PolicyLabels> label_heads(const LayerQuery& layer, std::span<const HeadAttention> heads,
                                      std::span<const HostDigests> digests, const BudgetLimits& limits);
/// The same under several limits at once, which costs little more than one: [limit][Hq].
std::vector<std::vector<PolicyLabels>> label_heads(const LayerQuery& layer, std::span<const HeadAttention> heads,
                                                   std::span<const HostDigests> digests,
                                                   std::span<const BudgetLimits> limits);

}  // namespace tandem
