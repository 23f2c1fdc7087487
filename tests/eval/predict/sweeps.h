// A small sweep, and what is said of its file.
#pragma once

#include <string>

#include "engine/common/error.h"
#include "eval/predict/sweep.h"

namespace tandem::eval {

inline constexpr const char* kShape = "llama-3.2-1b";
inline constexpr const char* kProgram = "tandem test";

inline Workload a_workload() {
  return {"test", "made up", {{{2, 0.5, 0.9}}}};
}

inline SweepOptions a_sweep() {
  SweepOptions o;
  o.methods = {"full", "quest:budget=256", "hgca:device_kv=256,block=16"};
  o.hardware = {load_profile("fluxion-a100"), load_profile("h200")};
  o.contexts = {512, 1024};
  o.batches = {2, 1};
  o.steps = 4;
  o.threads = 2;
  return o;
}

inline std::string json_of(const Sweep& sweep) {
  return sweep_json(sweep, "tandem simulate", kProgram);
}

inline Sweep settings_of(const SweepOptions& options) {
  const Model shape = load_shape(kShape);
  return empty_sweep(shape, options, a_workload());
}

template <class Read>
inline std::string sentence_of(const Read& read) {
  try {
    read();
  } catch (const InputError& error) {
    return error.what();
  }
  return "no InputError";
}

inline std::string refusal(const std::string& text, const Sweep& settings, const std::string& program = kProgram) {
  return sentence_of([&] { known_points(text, "sweep.json", settings, program); });
}

}  // namespace tandem::eval
