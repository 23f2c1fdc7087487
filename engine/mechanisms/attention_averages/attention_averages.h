// Averages of attention weights over steps, per layer and query head (HGCA section 3.2.1): they start from a prompt's
// last queries, follow the window on the device, and go to host memory along with the tokens that leave it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/device/device.h"
#include "engine/kv/kv_store.h"
#include "engine/runtime/companion.h"
#include "engine/runtime/mechanism.h"
#include "engine/runtime/weights.h"

namespace tandem {

// Averages of the attention weights of a sequence's tokens, per layer and query head (HGCA section 3.2.1). On the
// device they live in a ring beside the window they belong to; those of tokens that leave it go along to the host.
//   window: [layer][query head][ring] f32, token t at t % ring
//   left:   [layer][query head][capacity] f32, token t at t; written when the token leaves the device and by later
//           prompts
struct AttentionAverage final : Companion {
  static constexpr const char* kName = "average";
  SequenceId sequence = 0;
  std::uint32_t layers = 0, q_heads = 0;
  std::uint32_t ring = 0;  // tokens, whole pages
  float share = 0;         // of a step's weight in the average (alpha)
  DeviceBuffer window;
  HostWeights left;
  std::vector<Event> copied;   // [layer][ring / 16]: the copy that last read this page of the ring
  std::vector<Event> updated;  // [layer]: the operation that last changed the window
  std::vector<Event> moved;    // [layer]: the copy that brought what a prompt left before its window

  std::size_t window_offset(std::uint32_t layer, std::uint32_t head) const {  // in floats
    return (std::size_t{layer} * q_heads + head) * ring;
  }
  std::size_t bytes(Tier tier) const { return tier == Tier::device ? window.bytes() : left.values.bytes(); }

  /// Runs of tokens that are adjacent in the ring: at most two.
  template <class Call>
  void for_each_run(Range tokens, const Call& call) const {
    while (tokens.begin < tokens.end) {
      const std::uint32_t at = tokens.begin % ring;
      const std::uint32_t count = tokens.end - tokens.begin < ring - at ? tokens.end - tokens.begin : ring - at;
      call(tokens.begin, at, count);
      tokens.begin += count;
    }
  }
  void append_window_access(std::uint32_t layer, Range tokens, bool write, std::vector<Access>& out) const {
    for_each_run(tokens, [&](std::uint32_t, std::uint32_t at, std::uint32_t count) {
      Access access = write ? window.writes(at / kPageTokens, blocks_for(at + count))
                            : window.reads(at / kPageTokens, blocks_for(at + count));
      access.extent.layer = layer;
      out.push_back(access);
    });
  }
  Event& copied_page(std::uint32_t layer, std::uint32_t token) {
    return copied[std::size_t{layer} * (ring / kPageTokens) + token % ring / kPageTokens];
  }

  void declare_move(std::uint32_t layer, Range tokens, Op& op) override;
  void move(Copier& copier, std::uint32_t layer, Range tokens) const override;
  void moved_by(std::uint32_t layer, Range tokens, Event done) override;
};

/// Without any averages yet. `window_tokens`: most tokens of a window.
inline AttentionAverage make_average(Device& device, SequenceId sequence, std::uint32_t layers, std::uint32_t q_heads,
                                     std::uint32_t window_tokens, std::uint32_t capacity) {
  AttentionAverage average;
  average.sequence = sequence;
  average.layers = layers;
  average.q_heads = q_heads;
  average.ring = (blocks_for(window_tokens) + 1) * kPageTokens;  // a window may begin inside a page
  const std::size_t lists = std::size_t{layers} * q_heads;
  average.window = device.allocate_device(lists * average.ring * sizeof(float), "averages");
  average.left = {device.allocate_host(lists * capacity * sizeof(float), "averages of moved tokens"), q_heads,
                  capacity};
  average.copied.resize(std::size_t{layers} * average.ring / kPageTokens);
  average.updated.resize(layers);
  average.moved.resize(layers);
  return average;
}

using AverageRef = Ref<AttentionAverage>;  // averages of a sequence's attention weights

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
  Event observe_layer(const SequenceState& sequence, const ObserveRequest& request, std::uint32_t layer,
                      const DeviceBuffer& before, Event before_free);
};

}  // namespace tandem
