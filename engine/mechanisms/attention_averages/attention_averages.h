// Averages of attention weights over steps, per layer and query head (HGCA section 3.2.1): they start from a prompt's
// last queries, follow the window on the device, and go to host memory along with the tokens that leave it.
#pragma once

#include <span>

#include "engine/mechanisms/attention_averages/attention_average.h"
#include "engine/runtime/mechanism.h"

namespace tandem {

struct AverageRef {  // averages of a sequence's attention weights
  std::uint32_t id = 0;
};

/// A prompt, the first or a later one of a session, whose queries averages start from.
struct ObserveRequest {
  AverageRef average;
  Range prompt;                    // its tokens, the sequence's last ones
  std::uint32_t device_begin = 0;  // from here on everything is on the device
  std::uint32_t window_begin = 0;  // from here on everything stays there; both at a page's start
  std::uint32_t queries = 1;       // of the prompt's last tokens, at most Needs::last_queries
};

class AttentionAverages : public MechanismOf<AttentionAverage>, public WeightsTaker {
 public:
  using MechanismOf::MechanismOf;
  /// For all layers and query heads of a window of at most `window_tokens`, without any values yet. `share`: of a
  /// step's weight in the average, which becomes (1 - share) average + share weight.
  AverageRef make(SequenceState& sequence, std::uint32_t window_tokens, float share);
  /// Grows the averages to a window of `window_tokens`, and to max_tokens on the host; the window's values stay. Only
  /// between decodes.
  void extend(SequenceState& sequence, AverageRef average, std::uint32_t window_tokens);
  /// After a prompt: the averages of all tokens on the device become the mean weight that a token had under the
  /// prompt's last queries, each over its own past, whatever was known before. Tokens before the window have it from
  /// the softmax over all that the device holds, and it is on the host at once; tokens of the window from the softmax
  /// over the window, the set that later steps' weights come from. A prompt with fewer queries has all of them
  /// observed.
  void observe_prompt(SequenceState& sequence, const ObserveRequest& request);
  const AttentionAverage& get(AverageRef average) const { return kept_.get(average.id); }
  /// For Ops::move_to_host: the averages of the tokens go along, and the window that they follow then begins behind
  /// them.
  Companion* companion(AverageRef average) { return &kept_.get(average.id); }
  /// For a plan's only device item of a row: adjacent tokens of all KV heads that reach to the row's end. A token that
  /// is new starts at 0.
  WeightsTo weights_to(AverageRef average) { return {this, average.id}; }

  std::uint32_t most_tokens(std::uint32_t id) const override { return kept_.get(id).ring; }
  void take_weights(const LayerContext& context, std::span<const EmittedWeights> rows, const DeviceBuffer& scores,
                    const DeviceBuffer& lse) override;

 private:
  struct Observation {
    std::uint32_t layer = 0, begin = 0;  // first token on the device
    std::uint32_t tokens = 0;            // from there on,
    std::uint32_t leaving = 0;           // of these before the window,
    std::uint32_t observed = 0;          // and the last of them, whose queries are looked at
    Range window;
  };
  void launch_observation(LaunchContext& ctx, const AttentionAverage& average, const PromptQueries& queries,
                          const Observation& observation, const DeviceBuffer& before,
                          const std::vector<std::uint32_t>& slots) const;
  Event observe_layer(const SequenceState& sequence, const ObserveRequest& request, std::uint32_t layer,
                      const DeviceBuffer& before, Event before_free);
};

}  // namespace tandem
