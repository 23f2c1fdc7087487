// The embedded wording of the RULER tasks and the words it is filled with. One source, shared with the recipe that
// trains the embedded model: eval/ruler_tasks/wording.json and eval/ruler_tasks/words.json, found through data_path().
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eval/ruler_tasks/random.h"

namespace tandem::eval {

struct RulerWording {
  struct Relation {
    std::vector<std::string> facts;  // {a}, {b}; of two hops {a}, {b} and {b}, {c}
    std::string question;            // {a}; the answer is the last fact's last name
  };
  std::map<std::string, std::string, std::less<>> sentences;  // by their place in wording.json, "niah/intro"
  std::vector<Relation> relations, two_hops;
  std::vector<std::string> noise;  // sentences, repeated in this order
  std::vector<std::string> prose;  // sentences with {noun}, {adj}, {verb}
  std::vector<std::string> nouns, adjectives, verbs;
  std::string wording_hash, words_hash;  // 16 hexadecimal digits over the files' bytes

  const std::string& operator[](std::string_view place) const;
};

/// Reads and checks both files. Throws InputError naming the file and the field.
RulerWording load_ruler_wording(const std::string& wording_file, const std::string& words_file);

/// The shipped wording, read once. Thread-safe.
const RulerWording& ruler_wording();

/// `text` with every {name} of `values` replaced once per place; a value is never searched again.
std::string fill(std::string_view text, const std::vector<std::pair<std::string_view, std::string_view>>& values);

/// One sentence of invented prose.
std::string random_prose(const RulerWording& wording, Random& random);

}  // namespace tandem::eval
