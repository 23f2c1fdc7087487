// The embedded wording of the RULER tasks and the words it is filled with. One source, shared with the recipe that
// trains the embedded model: eval/ruler/wording.json and eval/ruler/words.json, found through data_path().
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eval/ruler/random.h"

namespace tandem::eval {

struct NeedleWording {
  std::string intro;            // {type}
  std::string needle;           // {type}, {key}, {value}
  std::string question_one;     // {type}, {key}: one value
  std::string question_values;  // {type}, {key}: all values of a key
  std::string question_keys;    // {type}, {keys}
  std::string keys_join;
  std::vector<std::pair<std::string, std::string>> types;  // "numbers" -> "number"
};

struct ChainWording {
  std::string intro;
  std::string first;     // {name}, {value}
  std::string next;      // {name}, {previous}
  std::string question;  // {value}
};

struct WordCountWording {
  std::string common_intro, common_join;
  std::string common_question;  // {k}
  std::string frequent_intro, frequent_question;
};

struct FactWording {
  struct Relation {
    std::string fact;      // {a}, {b}
    std::string question;  // {a}; the answer is {b}
  };
  struct TwoHops {
    std::string first;     // {a}, {b}
    std::string second;    // {b}, {c}
    std::string question;  // {a}; the answer is {c}
  };
  std::string intro;
  std::string document;  // {i}, {text}
  std::string question;  // {question}
  std::vector<Relation> relations;
  std::vector<TwoHops> two_hops;
};

struct RulerWording {
  NeedleWording needles;
  ChainWording chains;
  WordCountWording counts;
  FactWording facts;
  std::vector<std::string> noise;  // sentences, repeated in this order
  std::vector<std::string> prose;  // sentences with {noun}, {adj}, {verb}
  std::vector<std::string> nouns, adjectives, verbs;
  std::string wording_hash, words_hash;  // 16 hexadecimal digits over the files' bytes
};

/// Reads and checks both files. Throws InputError naming the file and the field.
RulerWording load_ruler_wording(const std::string& wording_file, const std::string& words_file);

/// The shipped wording, read once. Thread-safe.
const RulerWording& ruler_wording();

/// `text` with every {name} of `values` replaced once per place; a value is never searched again.
std::string fill(std::string_view text, const std::vector<std::pair<std::string_view, std::string_view>>& values);

/// "able-acid": an adjective and a noun.
std::string random_key(const RulerWording& wording, Random& random);
/// 1000000 .. 9999999, as upstream.
std::string random_number(Random& random);
/// RFC 4122 version 4, lower case.
std::string random_uuid(Random& random);
/// One sentence of invented prose.
std::string random_prose(const RulerWording& wording, Random& random);

}  // namespace tandem::eval
