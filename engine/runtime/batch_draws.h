// Draws scores for a batch from a workload's score process where no tensors are computed, and chooses blocks by them.
//
// Sequences of equal length may share their draws. The answers of a drawn sequence's current layer and step are kept
// for the rows that ask next, and those that no step matters to for all layers. That changes no figure: an answer
// depends on the question alone.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "engine/kernels/thread_pool.h"
#include "engine/runtime/score_process.h"
#include "engine/runtime/selection.h"

namespace tandem {

class BatchDraws {
 public:
  /// Who chooses: heads each, or all heads of a layer as one; the latter, one choice instead of dozens, is drawn for
  /// four times as many sequences.
  enum class By : std::uint8_t { heads, layer };
  static By by(Scope scope) { return scope == Scope::layer ? By::layer : By::heads; }

  BatchDraws(ThreadPool& pool, const Workload& workload, const ModelShape& shape)
      : pool_(pool), shape_(shape), process_(workload, shape) {}

  /// `kinds` [request]: requests with equal entries may share draws. The first `drawn` of each kind have draws of their
  /// own; the others take these in turn. `drawn` = 0: all requests have their own.
  void share(std::span<const std::uint64_t> kinds, std::uint32_t drawn);
  /// Where a request's choices are drawn.
  ScorePlace place(std::uint32_t request, std::uint32_t layer, std::uint32_t step, By by);
  /// The request whose draws a request got, of all places so far.
  std::uint32_t drawn_as(std::uint32_t request) const;

  // Places name a layer: all of its KV heads are drawn. References last until the sequence's next place.

  /// Lists [list][1 + choice.keep], as choose_blocks() makes them.
  const std::vector<std::uint32_t>& chosen_blocks(const ScorePlace& layer, const Choice& choice);
  /// Scores [group][n] of one KV head.
  const std::vector<float>& block_scores(const ScorePlace& head, std::uint32_t n);
  /// Salient ones of `tokens`, by KV head (ScoreProcess::salient_tokens).
  const std::vector<std::uint32_t>& salient_tokens(const ScorePlace& layer, Range tokens, double times);
  /// Sum over the KV heads of ScoreProcess::tokens_near_best.
  double tokens_near_best(const ScorePlace& layer, std::uint32_t n, double alpha);

 private:
  template <class Question, class Answer>
  class Kept {
   public:
    template <class Make>
    const Answer& get(const ScorePlace& place, const Question& question, const Make& make) {
      if (place.sequence >= sequences_.size()) sequences_.resize(place.sequence + 1);
      Sequence& own = sequences_[place.sequence];
      if (!(own.place == place)) {
        own.place = place;
        own.answers.clear();
      }
      for (const auto& [asked, answer] : own.answers)
        if (asked == question) return answer;
      return own.answers.emplace_back(question, make()).second;
    }

   private:
    struct Sequence {
      ScorePlace place;
      std::deque<std::pair<Question, Answer>> answers;  // of that place
    };
    std::vector<Sequence> sequences_;
  };

  void for_each_head(const ScorePlace& layer, const auto& work);

  ThreadPool& pool_;
  ModelShape shape_;
  std::array<std::vector<std::uint32_t>, 2> drawn_as_;  // by By, request
  std::array<bool, 2> asked_ = {};                      // by By
  ScoreProcess process_;
  Kept<Choice, std::vector<std::uint32_t>> chosen_;
  Kept<std::pair<std::uint32_t, std::uint32_t>, std::vector<float>> scores_;  // by KV head and number of blocks
  Kept<std::pair<Range, double>, std::vector<std::uint32_t>> salient_;        // by tokens and times, of each layer
  Kept<std::pair<std::uint32_t, double>, double> near_;                       // by number of tokens and alpha
};

}  // namespace tandem
