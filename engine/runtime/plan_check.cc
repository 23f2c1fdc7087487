// Whether a plan is one that the engine may carry out: AttendPlan's rules, before anything is submitted.
#include <algorithm>

#include "engine/common/error.h"
#include "engine/runtime/plan.h"

namespace tandem {
namespace {

struct Row {
  std::vector<Range> pieces;           // tokens that are attended, or chosen among
  std::vector<const Blocks*> choices;  // an index is of one sequence
  std::uint32_t items = 0;
  bool attends_own = false;  // the step's own token
  bool keeps_packed_weights = false;
};

class PlanCheck {
 public:
  PlanCheck(const LayerContext& context, const AttendPlan& plan)
      : context_(context), plan_(plan), rows_(context.batch.size()) {}

  void run() {
    for (const AttendItem& item : plan_.items) check_item(item);
    for (const auto& apart : plan_.apart) {
      for (const AttendItem& item : apart) {
        TANDEM_CHECK(common_of(item.kv).side == Side::device && !item.weights,
                     "what is attended apart for a finisher lies on the device, and leaves no weights");
        check_item(item);
      }
    }
    for (std::uint32_t row = 0; row < rows_.size(); ++row) {
      TANDEM_CHECK(rows_[row].items > 0, "a plan leaves row {} without attention", row);
      check_kept_weights(row);
      TANDEM_CHECK(rows_[row].attends_own, "a plan leaves out the step's own token, {} of row {}",
                   context_.batch[row]->tokens - 1, row);
      check_choices(rows_[row].choices);
    }
    if (!plan_.ready) return;
    TANDEM_CHECK(plan_.ready->layer == context_.layer, "a partial of layer {} in layer {}", plan_.ready->layer,
                 context_.layer);
    for (const std::uint32_t row : plan_.ready->rows)
      TANDEM_CHECK(row < rows_.size(), "a partial is of row {} of a batch of {}", row, rows_.size());
  }

 private:
  void check_item(const AttendItem& item) {
    TANDEM_CHECK(item.row < rows_.size(), "a plan names row {} of a batch of {}", item.row, rows_.size());
    ++rows_[item.row].items;
    const KvTokens& kv = common_of(item.kv);
    TANDEM_CHECK(!kv.sequence || *kv.sequence == context_.batch[item.row]->id,
                 "row {} attends tokens of another sequence", item.row);
    if (item.weights) {
      const auto* own = std::get_if<Packed>(&item.kv);
      const bool packed = own != nullptr;
      TANDEM_CHECK(own == nullptr || !own->memory.in_pages(), "packed tokens in pages leave no weights");
      TANDEM_CHECK(kv.side == Side::device && (packed || std::holds_alternative<Ranges>(item.kv)),
                   "only attention to fixed or packed tokens on the device leaves its weights");
      rows_[item.row].keeps_packed_weights |= packed;
    }
    check_positions(item, kv.positions);
    if (const auto* chosen = std::get_if<Blocks>(&item.kv)) rows_[item.row].choices.push_back(chosen);
    if (const auto* packed = std::get_if<Packed>(&item.kv); packed != nullptr && packed->named) {
      TANDEM_CHECK(packed->ready.valid() || on_host_too(item.row),
                   "chosen residents are attended where the host attends to the rest of the choice, or when that has "
                   "been recalled");
    }
  }

  void check_positions(const AttendItem& item, const std::vector<Range>& positions) {
    const std::uint32_t tokens = context_.batch[item.row]->tokens;
    const std::size_t before = rows_[item.row].pieces.size();
    std::uint32_t at = 0;
    for (const Range& r : positions) {
      TANDEM_CHECK(r.begin >= at && r.begin < r.end && r.end <= tokens,
                   "a plan names tokens [{}, {}) of {} (ranges must be sorted, disjoint, not empty)", r.begin, r.end,
                   tokens);
      at = r.end;
      rows_[item.row].pieces.push_back(r);
      rows_[item.row].attends_own |= r.end == tokens && std::holds_alternative<Ranges>(item.kv);
    }
    check_disjoint(item, before);
  }

  bool on_host_too(std::uint32_t row) const {
    return plan_.ready && std::ranges::find(plan_.ready->rows, row) != plan_.ready->rows.end();
  }

  /// Packed tokens with weights allow only the step's own token beside them.
  void check_kept_weights(std::uint32_t row) const {
    if (!rows_[row].keeps_packed_weights) return;
    const std::vector<Range>& pieces = rows_[row].pieces;
    TANDEM_CHECK(!on_host_too(row) && rows_[row].items == 2 && pieces.size() == 1 &&
                     pieces[0].begin + 1 == context_.batch[row]->tokens,
                 "row {} attends more than packed tokens, whose weights are kept, and the step's own", row);
  }

  /// No token twice; the pieces from `before` on are the item's.
  void check_disjoint(const AttendItem& item, std::size_t before) const {
    const std::vector<Range>& pieces = rows_[item.row].pieces;
    for (std::size_t i = before; i < pieces.size(); ++i) {
      for (std::size_t j = 0; j < before; ++j) {
        const Range &a = pieces[i], &b = pieces[j];
        TANDEM_CHECK(!overlap(a, b),
                     "a plan attends tokens [{}, {}) of row {} twice: they are in [{}, {}) and in [{}, {})",
                     std::max(a.begin, b.begin), std::min(a.end, b.end), item.row, b.begin, b.end, a.begin, a.end);
      }
    }
  }

  /// An index holds one choice at a time.
  static void check_choices(const std::vector<const Blocks*>& choices) {
    for (std::size_t i = 0; i < choices.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        TANDEM_CHECK(choices[i]->digests.id != choices[j]->digests.id || choices[i]->ready == choices[j]->ready,
                     "a plan attends two choices of one digest index, of which the later one has replaced the other: "
                     "build an index for each");
  }

  const LayerContext& context_;
  const AttendPlan& plan_;
  std::vector<Row> rows_;
};

}  // namespace

void check_plan(const LayerContext& context, const AttendPlan& plan) {
  PlanCheck(context, plan).run();
}

}  // namespace tandem
