// Fluxion's registry entry, and where its head properties come from. methods/fluxion/README.md describes the method.
#pragma once

#include <memory>
#include <string>

#include "methods/fluxion/properties.h"
#include "methods/registry.h"

namespace tandem {

/// Says on the device, in every layer and step, what each query head needs of its KV in host memory. Stateless between
/// layers: one object serves all sequences, and bodies call it from any thread.
class HeadSource {
 public:
  virtual ~HeadSource() = default;
  /// Of one layer, all rows: what it computes and reads on the device beside queries and partials.
  virtual Cost cost(const ModelShape& shape, std::uint32_t rows) const = 0;
  /// Properties [Hq] of a row. Where only shapes are simulated the view has no values.
  virtual void properties(const ModelShape& shape, const HeadView& view, HeadProperties* out) const = 0;
  /// With these properties everything is attended.
  virtual bool lossless() const { return false; }
};

/// The method of a spec with another source than the spec names: tests, and recorded properties.
std::unique_ptr<Method> make_fluxion(const MethodSpec& spec, std::shared_ptr<const HeadSource> source);

MethodInfo fluxion_info();

}  // namespace tandem
