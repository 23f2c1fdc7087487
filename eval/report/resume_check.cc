#include "eval/report/resume_check.h"

#include <algorithm>
#include <fmt/ranges.h>

#include "engine/common/error.h"
#include "eval/report/manifest_difference.h"
#include "eval/report/method_entry.h"
#include "eval/ruler/protocol.h"

namespace tandem::eval {
namespace {

/// Without the room for KV: slots are given out lowest first, however many there are, so that samples and virtual times
/// do not depend on it, and a run that ended for want of room goes on with more. Without the threads: where times
/// depend on them, the clock says how many they are, also where all of a machine were taken unasked.
std::vector<std::string> what_makes_samples(const std::string& command) {
  std::vector<std::string> words = words_of(command), kept;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--device-kv" || words[i] == "--host-kv" || words[i] == "--threads") {
      ++i;
    } else {
      kept.push_back(std::move(words[i]));
    }
  }
  return kept;
}

std::string protocol_difference(const std::string& there, const std::string& here) {
  std::vector<std::string> differences;
  for (const FieldDifference& d : protocol_differences(there, here))
    differences.push_back(fmt::format("{}: {} there, {} here", d.field, d.there, d.here));
  return fmt::format("{}", fmt::join(differences, "; "));
}

void check_data(const std::string& run, const Manifest& there, const Manifest& mine) {
  if (there.tasks != mine.tasks || there.lengths != mine.lengths) return;  // of which the data are
  const std::string difference = ruler_data_difference(there.protocol_id, mine.protocol_id);
  if (!difference.empty())
    throw_input_error("{} was begun with other data, so it cannot be resumed with these ({}).", run, difference);
}

/// What the command only names: files may have changed since, and the instruction set and the clock are this machine's.
void check_same_inputs(const std::string& run, const Manifest& there, const Manifest& mine) {
  if (there.weights_hash != mine.weights_hash) {
    throw_input_error(
        "{} was begun with other weights of '{}', so it cannot be resumed with these ({} there, {} here).", run,
        mine.model, there.weights_hash, mine.weights_hash);
  }
  const bool named = !there.config_hash.empty() && !mine.config_hash.empty();  // of merged runs either may be older
  if (named && there.config_hash != mine.config_hash) {
    throw_input_error(
        "{} was begun with another config.json of '{}', so it cannot be resumed with this one ({} there, {} here).",
        run, mine.model, there.config_hash, mine.config_hash);
  }
  if (there.protocol_id != mine.protocol_id) {
    throw_input_error("{} was begun under another protocol, so it cannot be resumed under this one ({}).", run,
                      protocol_difference(there.protocol_id, mine.protocol_id));
  }
  if (there.isa != mine.isa) {
    throw_input_error(
        "{} was begun with {}, so it cannot be resumed with the instruction set {}, which rounds differently{}.", run,
        there.isa.empty() ? "an unknown instruction set" : "the instruction set " + there.isa, mine.isa,
        there.isa.empty() ? "" : fmt::format(": set TANDEM_ISA={} where this CPU has it", there.isa));
  }
  const bool compared = there.schema_version >= 14 && mine.schema_version >= 14 && !mine.openblas.empty();
  if (compared && there.openblas != mine.openblas) {
    throw_input_error(
        "{} was begun with {}, so it cannot be resumed with OpenBLAS {}, which rounds InfiniGen's eigenvectors "
        "differently: OPENBLAS_CORETYPE names the kernels.",
        run, there.openblas.empty() ? "no OpenBLAS" : "OpenBLAS " + there.openblas, mine.openblas);
  }
  if (there.clock != mine.clock) {
    throw_input_error("The times in {} are {}; here they would be {}, so that it cannot be resumed.", run, there.clock,
                      mine.clock);
  }
  const int version = std::min(there.schema_version, mine.schema_version);
  if (version < 5) return;
  // The command need not name them: with another default, the rest of the run would be another computation.
  if (version >= 8 && (there.precision != mine.precision || there.prefill_chunk != mine.prefill_chunk)) {
    throw_input_error(
        "{} was begun with precision {} and prefill chunks of {} tokens; here they would be {} and {}, so that it "
        "cannot "
        "be resumed.",
        run, there.precision, there.prefill_chunk, mine.precision, mine.prefill_chunk);
  }
  if (there.hardware_hash != mine.hardware_hash) {
    throw_input_error("The hardware profile '{}' has changed since {} was begun, so that it cannot be resumed.",
                      mine.hardware_profile, run);
  }
  for (const MethodEntry& method : mine.methods) {
    const auto is_there = [&](const MethodEntry& e) { return e.label == method.label && same_method(e, method); };
    if (std::ranges::any_of(there.methods, is_there)) continue;
    throw_input_error(
        "Method '{}' is another one than when {} was begun, by its defaults or by a file that it reads, so that the "
        "run cannot be resumed.",
        method.label, run);
  }
}

}  // namespace

void check_resumable(const std::filesystem::path& path, const Manifest& there, const Manifest& mine) {
  const std::string run = path.string();
  check_data(run, there, mine);
  if (what_makes_samples(there.command) != what_makes_samples(mine.command)) {
    throw_input_error("{} was made by another command, so it cannot be resumed:\n  there: {}\n  here:  {}", run,
                      there.command, mine.command);
  }
  check_same_inputs(run, there, mine);
}

}  // namespace tandem::eval
