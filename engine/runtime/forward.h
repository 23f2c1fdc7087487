// The model's forward pass as operations on the device's compute lane: embedding, QKV with the KV write, attention,
// the rest of the layer, logits. Decode and prefill submit the same operations; only the matrix kernels and the
// attention differ. Host-side parts of a method's attention are in decode_attention.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/device/device.h"
#include "engine/kernels/linear_gpu.h"
#include "engine/kernels/pointwise.h"
#include "engine/kernels/rope.h"
#include "engine/kernels/sampling.h"
#include "engine/kernels/thread_pool.h"
#include "engine/kv/kv_store.h"
#include "engine/model/model.h"
#include "engine/runtime/device_weights.h"
#include "engine/runtime/layer_keeper.h"
#include "engine/runtime/observer.h"
#include "engine/runtime/plan.h"
#include "engine/runtime/shown_rows.h"

namespace tandem {

ModelShape shape_of(const ModelConfig& config);

/// Queries of a prompt's last tokens, for what methods learn from them.
struct PromptQueries {
  DeviceBuffer values;     // [layer][kept][Hq][D] f32: the query of token t at t % kept
  std::uint32_t kept = 0;  // tokens
};

/// Attention mass that a prompt's tokens got from its queries, for methods that learn from it.
struct PromptSums {
  DeviceBuffer values;     // [layer][Hkv][room] f32, summed over the query heads of the group
  std::uint32_t room = 0;  // tokens
};

/// Rows of a chunk whose queries are kept: from `first_row` on; none without room.
struct KeepQueries {
  PromptQueries to;
  std::uint32_t first_row = 0;
};

/// Where one row's K and V of a layer go.
struct KvTarget {
  std::uint32_t slot = 0;
  std::uint32_t offset = 0;  // token inside the page
};

class Forward {
 public:
  enum class Phase : std::uint8_t { prefill, decode };

  /// score_floats: EngineOptions.
  Forward(const Model& model, Device& device, ThreadPool& pool, KvStore& kv, std::uint32_t max_rows,
          std::uint32_t max_batch, std::size_t score_floats);

  const ModelShape& shape() const { return shape_; }
  const RopeTable& rope_table() const { return rope_; }
  /// nullptr: none. The device must be idle.
  void observe(ForwardObserver* observer);
  std::uint32_t vocab() const { return model_.config.vocab; }

  /// Copies tokens of the control thread to the device: tokens()[row] = ids[row].
  Event upload_tokens(std::span<const std::int32_t> ids);
  /// x[row] = embedding[tokens()[source[row]]].
  Event embed(std::vector<std::uint32_t> source, std::vector<Event> after);
  /// norm, QKV, QK-norm, RoPE; q stays in q(), K and V go to their pages, kept queries to
  /// their room.
  Event qkv(Phase phase, std::uint32_t layer, std::vector<std::uint32_t> positions, std::vector<KvTarget> targets,
            std::vector<Event> after, const KeepQueries& keep = {});
  /// The query of `layer` from what x() holds, under the input norm of layer `norm_of`: W_Q is read once more than the
  /// layer itself does. Into rows of `out` [row][Hq][D]; decode only.
  Event predict_query(std::uint32_t layer, std::uint32_t norm_of, std::vector<std::uint32_t> positions,
                      const DeviceBuffer& out);
  /// Causal attention of a prefill chunk over the sequence's device pages, own chunk included.
  /// `there`: when pages that a LayerKeeper brought are.
  Event prefill_attention(SequenceId sequence, std::uint32_t layer, std::uint32_t first, std::uint32_t rows,
                          Event there = {});
  /// Names the operations of add_column_sums in a trace.
  static constexpr const char* kColumnSums = "column sums";
  /// Adds the weights of a prefill chunk's queries to the mass of the tokens that they see. The same bits in any
  /// chunks.
  Event add_column_sums(SequenceId sequence, std::uint32_t layer, std::uint32_t first, std::uint32_t rows,
                        const PromptSums& sums);
  /// Output projection, residual, norm, MLP, residual.
  Event finish_layer(Phase phase, std::uint32_t layer, std::uint32_t rows);
  /// A chunk of a prompt: `tokens` behind what the sequence has, through all layers. `attend` submits a layer's
  /// attention of positions first .. first + rows - 1 behind what wrote their q and KV, and behind what brought older
  /// pages. `segment`: its name. `keeper`: brings each layer's KV; nullptr: it is on the device.
  struct Attending {
    std::uint32_t layer = 0, first = 0, rows = 0;
    Event written, there;
  };
  using Attend = std::function<void(const Attending&)>;
  Event prefill_chunk(const char* segment, SequenceId sequence, std::span<const std::int32_t> tokens,
                      const KeepQueries& keep, LayerKeeper* keeper, const Attend& attend);
  /// A row's draw of the token at `position`.
  struct Draw {
    Sampling how;
    std::uint64_t position = 0;
  };
  /// Final norm, logits, the two best tokens; tokens()[row] = best, or what `draws` [rows] draws. `forced` overrides
  /// tokens (teacher forcing), and their log probabilities are kept.
  Event sample(std::uint32_t rows, std::vector<std::int32_t> forced, std::vector<Draw> draws = {});
  /// What sample() found, to the host. `wait` it before reading host_top() and, where tokens were forced,
  /// host_log_probability(), where they were drawn, host_drawn().
  Event download_top(std::uint32_t rows, bool forced, bool drawn, Event sampled);
  /// Prefill path's logits of all rows, for tests and perplexity: normed x times the head, into `out` [rows][vocab].
  void all_logits(std::uint32_t rows, float* out);

  const DeviceBuffer& x() const { return x_; }
  const DeviceBuffer& q() const { return q_; }                  // [row][Hq][D]
  const DeviceBuffer& attention() const { return attention_; }  // [row][Hq][D]
  const DeviceBuffer& logits() const { return logits_; }        // [row][vocab]
  const HostBuffer& host_top() const { return host_top_; }
  const HostBuffer& host_log_probability() const { return host_log_probability_; }
  const HostBuffer& host_drawn() const { return host_drawn_; }  // [batch] i32
  std::uint32_t max_batch() const { return max_batch_; }
  std::size_t score_floats() const { return score_floats_; }

 private:
  Cost weights_cost(Phase phase, std::initializer_list<MatrixView> weights, std::uint32_t rows) const;

  DType precision() const { return kv_.shape().type; }  // EngineOptions::precision

  // Parts of what a GPU launches. `ctx` is of an operation on the compute lane.
  void launch_norm(LaunchContext& ctx, const PlacedMatrix& norm, const PlacedMatrix& next, std::uint32_t rows,
                   void* normed) const;
  QkvWeights qkv_weights(const LaunchContext& ctx, std::uint32_t layer) const;
  void launch_logits(LaunchContext& ctx, std::uint32_t first, std::uint32_t rows);
  std::size_t scratch_floats(std::size_t rows) const;

  const Model& model_;
  Device& device_;
  ThreadPool& pool_;
  KvStore& kv_;
  ModelShape shape_;
  RopeTable rope_;
  std::unique_ptr<LinearCuda> linear_;  // where the device launches; its workspace is the compute lane's
  DeviceWeights weights_;
  ForwardObserver* observer_ = nullptr;
  std::unique_ptr<ShownRows> shown_;  // where the device launches and there is an observer
  std::uint32_t max_rows_, max_batch_;
  std::size_t score_floats_;
  LaneId compute_, h2d_, d2h_;
  DeviceBuffer tokens_;              // [row] i32
  DeviceBuffer x_;                   // [row][hidden]
  DeviceBuffer q_;                   // [row][Hq][D]
  DeviceBuffer attention_;           // [row][Hq][D]
  DeviceBuffer scratch_;             // inside one operation only
  DeviceBuffer logits_;              // [batch][vocab]
  DeviceBuffer top_;                 // [batch] TopTwo
  DeviceBuffer choose_scratch_;      // where the device launches
  DeviceBuffer log_probability_;     // [batch] f64, natural logarithm, of forced tokens
  HostBuffer host_tokens_;           // [row] i32
  HostBuffer host_top_;              // [batch] TopTwo
  HostBuffer host_log_probability_;  // [batch] f64
  HostBuffer host_drawn_;            // [batch] i32
};

/// q [rows][Hq][D] of a layer from its normed input: W_Q, QK-norm where the model has it, RoPE. The one definition,
/// also for queries that are predicted from another layer's input.
void make_query(Forward::Phase phase, DType precision, const Model& model, const RopeTable& table, ThreadPool& pool,
                std::uint32_t layer, const float* normed /*[rows][hidden]*/, std::span<const std::uint32_t> positions,
                float* q);

}  // namespace tandem
