// A run's answer: which methods keep the baseline's score, and what a step of each costs. It is collected once, for the
// end of a terminal's output and for the head of a page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "eval/report/statistics.h"
#include "eval/report/summary.h"

namespace tandem::eval {

/// Figures of a method. Times and bytes are means over lengths, each with the same weight (mean_of_lengths()).
struct AnswerRow {
  std::string label;                 // as typed
  std::string name;                  // the label, or what tells a long one from the others (short_labels())
  Estimate score;                    // in [0, 1]; of a perplexity mean nats of a token
  std::optional<double> attended;    // tokens per KV head, layer and step, on device and host together
  std::optional<double> kv_share;    // bytes of context that a step touches, as a share of what `full` touches
  std::optional<double> tpot_ms;     // milliseconds per token after the first
  std::optional<double> idle_share;  // share of a step in which the device waits
  /// Whether no loss is shown: the 95 % interval of the paired difference to the baseline reaches 0, or lies on the
  /// better side of it. True for the baseline; false where no difference or no interval is known.
  bool keeps = false;
  double may_lose = 0;  // end of that interval: score, or nats per token, that the samples do not exclude as a loss
  bool front = false;   // no row has a score at least as good at a cost at most as high, one of them strictly
  std::vector<std::uint32_t> attends_everything_at = {};  // lengths, as in MethodSummary
};

/// Cost over which the front is drawn: the first that every row has.
enum class AnswerCost : std::uint8_t { kv_share, tpot, none };

struct Answer {
  std::string title;     // "RULER on embedded: 4 methods, 60 samples of each"
  std::string measure;   // head of the scores: "accuracy, %", "score, %", "perplexity"
  std::string baseline;  // its row's name
  std::string clock;     // of the times; empty where none are taken
  bool losses = false;   // scores are nats per token: the lowest is the best
  AnswerCost cost = AnswerCost::none;
  std::vector<AnswerRow> rows;         // the best score first; among equals the lowest cost, then as in the run
  std::vector<std::string> sentences;  // how to read the rows
};

/// The answer of a run with at least one method that has a sample.
Answer answer_of(const Summary& summary);

/// A column of figures, one cell for each row of the answer.
struct AnswerColumn {
  std::string head;
  std::vector<std::string> cells;
};

/// Columns of the cost of a step, and last the mark of the front. Columns that no row has a value for are left out.
std::vector<AnswerColumn> cost_columns(const Answer& answer);

/// Markdown: the front and the sentences, as a list.
std::string answer_list(const Answer& answer);

/// Name of a benchmark's scores: "accuracy", "score" where samples are not right or wrong alone, or "perplexity".
std::string score_name(const std::string& benchmark);
/// Head of their column, as Answer::measure.
std::string measure_of(const std::string& benchmark);

/// "80.8 [72.9, 86.9]" of a row: in per cent, or as perplexity.
std::string score_text(const Answer& answer, const AnswerRow& row);

/// Text of at most `lines` lines of at most `width` columns: title, table and sentences. Columns that no row has a
/// value for are left out, and rows that do not fit are counted; the best row is there however few lines there are.
/// Needs 60 columns.
std::string answer_text(const Answer& answer, std::size_t width, std::size_t lines);

}  // namespace tandem::eval
