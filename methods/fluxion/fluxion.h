// Fluxion's registry entry, and where its head properties come from. methods/fluxion/README.md describes the method.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/mechanisms/work_queue/work_queue.h"
#include "methods/fluxion/properties.h"
#include "methods/registry.h"

namespace tandem {

/// What a source sees of a row in a layer and step.
struct HeadInputs {
  HeadView view;  // its row moves when other sequences end; apart: sinks, the window's tokens; rest: newer ones
  Range host;     // tokens in host memory
  const void* memory = nullptr;  // what HeadSource::prepare made of the sequence
  std::uint32_t request = 0;     // the sequence's number in the batch that was asked for
};

/// Says on the device, in every layer and step, what each query head needs of its KV in host memory. One object serves
/// all sequences, and operations call it from any thread.
class HeadSource {
 public:
  virtual ~HeadSource() = default;
  /// InputError where it cannot serve this model and placement.
  virtual void check(const ModelShape&, std::uint32_t /*sinks*/, std::uint32_t /*window*/) const {}
  /// Method::content().
  virtual std::uint64_t content() const { return 0; }
  /// Method::trained_for().
  virtual std::string trained_for() const { return {}; }
  /// With these properties everything is attended.
  virtual bool lossless() const { return false; }
  /// Blocks that a head gets at least where it is not said to stream.
  virtual std::uint32_t least_blocks() const { return 0; }
  /// Needs::last_queries.
  virtual std::uint32_t last_queries() const { return 0; }
  /// Of a prefilled sequence, all of it on the device still, of which `host` is about to leave. What it returns lives
  /// as long as the sequence and is written by operations on the device only.
  virtual std::shared_ptr<void> prepare(SequenceState&, Range /*host*/, Ops&) const { return nullptr; }
  /// What that takes on the device, of one sequence.
  virtual std::size_t kept_bytes(const ModelShape&) const { return 0; }
  /// Of one layer, all rows: what it computes and reads on the device beside queries and partials.
  virtual Cost cost(const ModelShape& shape, std::uint32_t rows) const = 0;
  /// Properties [Hq] of a row. Where only shapes are simulated the view has no values.
  virtual void properties(const ModelShape& shape, const HeadInputs& inputs, HeadProperties* out) const = 0;
  /// Its twin on a GPU, for those rows of a batch that have something in host memory: the views name device memory, in
  /// which rows lie one after another. On the control thread. By default an InputError: there is none.
  virtual void launch(LaunchContext& ctx, const ModelShape& shape, std::span<const HeadInputs> inputs,
                      float* out /*[row][Hq][budget, slope, streaming]*/) const;
};

/// HeadSource::launch() of a source that looks at no values: its properties are made on the host and copied.
void launch_known(LaunchContext& ctx, const HeadSource& source, const ModelShape& shape,
                  std::span<const HeadInputs> inputs, float* out);

/// What the blocks that one row's heads attend in a layer and step leave out, by query head.
struct HeadErrors {
  std::uint32_t layer = 0;
  std::vector<double> relative;  // |o_h(chosen) - o_h| / max_h' |o_h'|: the left side of Eq. 2
  std::vector<double> attended;  // share of the host's tokens
};
/// Operations call it from any thread.
using HeadWatch = std::function<void(const HeadErrors&)>;

/// The method of a spec, watched (oracle_heads.h). InputError for spill.
std::unique_ptr<Method> make_watched_fluxion(const MethodSpec& spec, HeadWatch watch);

/// The method of a spec with another source than the spec names: tests, and recorded properties.
std::unique_ptr<Method> make_fluxion(const MethodSpec& spec, std::shared_ptr<const HeadSource> source);

MethodInfo fluxion_info();

}  // namespace tandem
