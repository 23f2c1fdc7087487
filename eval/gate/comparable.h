// Whether two runs can be judged by one another at all.
#pragma once

#include <string>
#include <vector>

#include "eval/report/run_folder.h"

namespace tandem::eval {

/// InputError where a difference between the runs could be due to something else than the program: another benchmark,
/// protocol, model, tokenizer, seed, batch, clock or hardware profile, or for measured times another machine (unless
/// `any_machine`); also where one of them is unfinished. It names what differs, with both values.
void check_comparable(const RunFolder& baseline, const RunFolder& run, bool any_machine);

/// InputError where the run lacks a task, a length or samples that the baseline has: what was lost there nobody would
/// see.
void check_has_samples_of(const RunFolder& baseline, const RunFolder& run);

/// What differs and may be what is to be judged: a sentence each.
std::vector<std::string> differences_to_note(const Manifest& baseline, const Manifest& run);

}  // namespace tandem::eval
