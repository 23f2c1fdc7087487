// The protocol id of RULER runs: one line that names everything two runs must share for their scores to be comparable.
//   ruler/<variant>+<field>:<value>+<field>:<value>...       no value has a '+'; only the first ':' of a part separates
//
// Embedded source, variant "embedded-v4" (v3, with the same fields: rare words of cwe came back in texts of more than
// 20,220 words), fields in this order:
//   essay      prose (invented), or the hash of the essays' file
//   qa_1       made-up, or squad-<hash of the questions' file>
//   qa_2       made-up, or hotpot-<hash>
//   wording    hash of wording.json
//   words      hash of words.json
//   tok, template, length, score, budget, query, question, eos as below
// Official files, variant "official-v2":
//   data       hash of the files of the tasks and lengths that are run, and of no other
//   tok        hash of the tokenizer's files
//   template   chat template around the prompt: none; in-files: the official prompts have one, which is kept; unknown:
//              they begin like one, which is kept, but is none that is known here
//   length     fitted: begin token + prompt + tokens to generate are as long as the length allows; as-is: whatever the
//              files hold. Nothing is ever cut off.
//   score      upstream: its post-processing, string match and tokens to generate. upstream-v2: the same, where answers
//              come from files; before, upper and lower case were alike for letters of ASCII only, of which all other
//              answers are
//   budget     what the budget of each of the run's methods counts (MethodInfo::budget), by name:
//              hgca=...,streaming=...; none: no method has one
//   query      aware: the question is part of the context when methods select or compress; unaware: it comes later
//   question   in-prefill: the question's own tokens attend exactly, like the context's; after-prefill: through the
//              method
//   eos        stops: generation ends at the model's end token; ignored: all tokens to generate are generated
// Hashes are as their files' readers give them. Seed, tasks, lengths and samples are not part of it: the manifest has
// them, and runs that differ in them can still be compared where they overlap.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eval/ruler_tasks/ruler.h"

namespace tandem::eval {

struct RulerProtocol {
  std::string tokenizer_hash;
  std::string data_hash = {};  // of official files; empty for the embedded source
  RulerTexts texts = {};       // of the embedded source
  std::string chat_template = "none";
  std::string budget = "none";  // budget_meanings() (eval/run/decoded.h)
};

std::string ruler_protocol_id(const RulerProtocol& protocol);

/// Fields and values of an id in their order, the first being {"variant", "embedded-v4"}; none for an id of another
/// form.
std::vector<std::pair<std::string, std::string>> ruler_protocol_fields(std::string_view id);

/// Whether the samples are of official files, so that no seed made them.
bool ruler_reads_files(std::string_view id);

/// One line on where the prompts of `tasks` came from: "niah_single_2 in invented prose; qa_1: questions of a file
/// (squad-0123456789abcdef)". Empty for an id that does not say it.
std::string ruler_data_text(std::string_view id, const std::vector<std::string>& tasks);

/// Those of `tasks` whose n-th sample has the same question at every length: questions of files. Over several lengths
/// such samples are not independent.
std::vector<std::string> ruler_repeating_tasks(std::string_view id, const std::vector<std::string>& tasks);

/// Two ids of the same variant whose data (official files, essays, questions, wording) differ: what differs, with both
/// hashes, "data: 0123 there, 4567 here". Else empty.
std::string ruler_data_difference(std::string_view there, std::string_view here);

}  // namespace tandem::eval
