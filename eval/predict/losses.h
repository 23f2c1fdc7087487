// Losses of methods: from a run of the user's own, from the runs that ship, and from the papers' tables. A method that
// keeps little of the context is fast and may answer badly, so that a recommendation needs both.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/model/model.h"
#include "eval/report/statistics.h"

namespace tandem::eval {

/// Evidence for a loss, the best first.
enum class LossKind : std::uint8_t {
  construction,  // the method computes what full attention does
  yours,         // measured by a run that the user names
  run,           // measured by a run that ships
  paper,         // a paper says so
  unknown        // nothing was run at that length
};
/// As JSON has them, in that order.
inline constexpr std::array<const char*, 5> kLossKinds = {"construction", "your run", "shipped run", "paper",
                                                          "unknown"};

/// The loss of one method at one length of prompts.
struct Loss {
  LossKind kind = LossKind::unknown;
  std::string method;                       // spec
  std::string model;                        // that answered: "SmolLM2-135M-Instruct"
  std::string source;                       // where it stands: "needles in essays, studies/results/smollm2-longer.json"
  std::uint32_t shortest = 0, longest = 0;  // tokens of the prompts; equal where all have one length
  double share = 0;                         // of the context that a step attends, in (0, 1]; 0: not known
  double points = 0;  // full attention's score minus the method's on the same samples; a score is 0 to 100
  std::optional<Interval> interval;  // of that, 95 %; nullopt: none is given
  bool exact = false;                // measured with all of the method's options as `method` has them
  bool any_length = false;  // `exact`, with a budget that is no number of tokens: the same setting at other lengths

  bool measured() const { return kind == LossKind::yours || kind == LossKind::run; }
};

/// The losses of methods/losses.json, which ships: runs of this program on small models, and papers' tables.
/// InputError naming file and field.
std::vector<Loss> shipped_losses();
std::vector<Loss> parse_losses(const std::string& text, const std::string& file);

/// Losses measured by `run`, a folder of compare or eval, of those of these methods that it has: of the same name and
/// options, defaults spelled out, that read the same files. A method that only stands in for a trained one where a
/// shape is simulated (MethodInfo::for_simulated_shapes) is the run's one that read a file in its place. InputError for
/// a folder that holds no finished run with scores, or whose first method, which losses are measured against, loses
/// something itself at the shape, or that has none of the methods that lose something.
std::vector<Loss> losses_of_run(const std::filesystem::path& run, const std::vector<std::string>& methods,
                                const Model& shape);

/// The shipped losses that say something of these methods, each with the method's spec in place of its own: of the same
/// name and options except the budget, or, where the share is not known, `exact` ones.
std::vector<Loss> losses_of_methods(const std::vector<Loss>& shipped, const std::vector<std::string>& methods);

}  // namespace tandem::eval
