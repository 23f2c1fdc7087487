// Small files of questions, for tests.
#pragma once

namespace tandem::eval {

// Two articles; one impossible question and one without answers; a paragraph that stands in both articles.
inline constexpr const char* kSquad = R"({"version": "v2.0", "data": [
  {"title": "Wood", "paragraphs": [
    {"context": "Oak is hard.", "qas": [
      {"id": "1", "question": " What is oak? ", "is_impossible": false,
       "answers": [{"text": "hard", "answer_start": 7}, {"text": "hard", "answer_start": 7}, {"text": "Oak is hard"}]},
      {"id": "2", "question": "Is oak red?", "is_impossible": true, "answers": [], "plausible_answers": [{"text": "x"}]}]},
    {"context": "Elm bends.\nIt is old.", "qas": [{"question": "What bends?", "answers": [{"text": "Elm"}]}]},
    {"context": "Tin is soft.", "qas": [{"question": "What is tin?", "answers": [{"text": "soft"}]}]}]},
  {"paragraphs": [
    {"context": "Gold is soft.", "qas": [{"question": "What is soft?", "answers": [{"text": "Gold"}]},
                                         {"question": "Why?", "answers": []}]},
    {"context": "Oak is hard.", "qas": []}]}]})";

// The second question's file says nothing about what supports its answer.
inline constexpr const char* kHotpot = R"([
  {"_id": "a", "question": "In which country was Ann born?", "answer": "Italy", "type": "bridge",
   "supporting_facts": [["Rome", 0], ["Nobody", 3]],
   "context": [["Ann", ["Ann was born.", " In Rome."]], ["Rome", ["Rome is in Italy."]]]},
  {"question": "Who sings?", "answer": "Bob",
   "context": [["Bob", ["Bob sings."]], ["Ann", ["Ann was born.", " In Rome."]], ["Bob", ["Bob sings."]]]}])";

}  // namespace tandem::eval
