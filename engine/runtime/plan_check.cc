#include "engine/runtime/plan_check.h"

#include <algorithm>

#include "engine/common/error.h"

namespace tandem {
namespace {

/// Tokens that KV heads of a row attend, or choose among.
struct Piece {
  Range heads, tokens;
};

struct Row {
  std::vector<Piece> pieces;
  std::vector<Range> own;                    // heads that attend the step's own token
  std::vector<const SelectionRef*> choices;  // an index is of one sequence
  std::uint32_t items = 0;
  bool heavy = false;
};

class PlanCheck {
 public:
  PlanCheck(const LayerContext& context, const AttendPlan& plan, const SequenceStores& stores)
      : context_(context), plan_(plan), stores_(stores), rows_(context.batch.size()) {}

  void run() {
    for (const AttendItem& item : plan_.items) check_item(item);
    if (plan_.tasks) {
      for (const auto& apart : plan_.tasks->apart) {
        for (const AttendItem& item : apart) {
          TANDEM_CHECK(item.side == Side::device && !item.average,
                       "what is attended apart for estimates lies on the device, and goes into no average");
          check_item(item);
        }
      }
    }
    for (std::uint32_t row = 0; row < rows_.size(); ++row) {
      TANDEM_CHECK(rows_[row].items > 0, "a plan leaves row {} without attention", row);
      TANDEM_CHECK(!rows_[row].heavy || rows_[row].items == 1, "row {} attends survivors and something else", row);
      check_own_token(row);
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
    TANDEM_CHECK(item.kv_heads.begin < item.kv_heads.end && item.kv_heads.begin < context_.shape.kv_heads,
                 "a plan names KV heads [{}, {}) of {}", item.kv_heads.begin, item.kv_heads.end,
                 context_.shape.kv_heads);
    ++rows_[item.row].items;
    const std::size_t before = rows_[item.row].pieces.size();
    std::visit([&](const auto& source) { check_source(item, source); }, item.pages.source);
    check_disjoint(item, before);
  }

  void check_source(const AttendItem& item, const StaticTokens& fixed) {
    const std::uint32_t tokens = context_.batch[item.row]->tokens;
    std::uint32_t at = 0;
    TANDEM_CHECK(!item.average || item.side == Side::device, "only attention on the device goes into an average");
    if (item.average) check_own(item, stores_.averages.get(item.average->id));
    for (const Range& r : fixed.ranges) {
      TANDEM_CHECK(r.begin >= at && r.begin < r.end && r.end <= tokens,
                   "a plan names tokens [{}, {}) of {} (ranges must be sorted, disjoint, not empty)", r.begin, r.end,
                   tokens);
      at = r.end;
      add(item, r);
      if (r.end == tokens) rows_[item.row].own.push_back(item.kv_heads);
    }
  }
  void check_source(const AttendItem& item, const SelectionRef& chosen) {
    check_side(item, chosen.digests.side);
    add_choice(item, chosen);
  }
  void check_source(const AttendItem& item, const FetchedRef& fetched) {
    check_side(item, Side::device);
    check_own(item, stores_.stagings.get(fetched.staging.id));
    if (const auto* fixed = std::get_if<StaticTokens>(&fetched.tokens)) check_source(item, *fixed);
    if (const auto* chosen = std::get_if<SelectionRef>(&fetched.tokens)) add_choice(item, *chosen);
  }
  void check_source(const AttendItem& item, const ChosenTokens& chosen) {
    check_side(item, Side::device);
    check_own(item, stores_.choices.get(chosen.choice));
    add(item, chosen.scored);
  }
  void check_source(const AttendItem& item, const HeavyRef& survivors) {
    check_side(item, Side::device);
    check_own(item, stores_.heavy.get(survivors.id));
    rows_[item.row].heavy = true;
    rows_[item.row].own.push_back(item.kv_heads);
  }
  void check_source(const AttendItem& item, const ResidentBlocks& residents) {
    TANDEM_CHECK(item.side == Side::device && item.kv_heads.begin == 0 && !item.average,
                 "residents are attended on the device, by all heads");
    check_own(item, stores_.residents.get(residents.set.id));
    const auto in_partial = [&] {
      return plan_.ready &&
             std::find(plan_.ready->rows.begin(), plan_.ready->rows.end(), item.row) != plan_.ready->rows.end();
    };
    TANDEM_CHECK(
        !residents.chosen_only || !stores_.residents.get(residents.set.id).open(context_.layer) || in_partial(),
        "chosen residents are attended where the host attends to the rest of the choice");
  }
  void check_source(const AttendItem& item, const TokenSetRef& packed) {
    check_side(item, Side::host);
    check_own(item, stores_.sets.get(packed.id));
  }
  void check_source(const AttendItem& item, const Speculated& fetched) {
    check_side(item, Side::device);
    check_own(item, stores_.skewed.get(fetched.index.id));
  }
  void check_source(const AttendItem& item, const SelectedAhead& sent) {
    check_side(item, Side::device);
    check_own(item, stores_.ranks.get(sent.rank.id));
  }

  /// What a handle names is the row's.
  template <class T>
  void check_own(const AttendItem& item, const T& object) const {
    TANDEM_CHECK(object.sequence == context_.batch[item.row]->id, "row {} attends by a {} of another sequence",
                 item.row, T::kName);
  }

  /// Of all kinds but StaticTokens and residents.
  static void check_side(const AttendItem& item, Side side) {
    TANDEM_CHECK(item.side == side,
                 "a selection is attended on the side where it was made, fetched and surviving KV on the device");
    TANDEM_CHECK(!item.average, "only attention to fixed tokens on the device goes into an average");
  }

  void add_choice(const AttendItem& item, const SelectionRef& chosen) {
    const DigestIndex& index = stores_.digests.get(chosen.digests.id);
    check_own(item, index);
    add(item, index.digested(context_.layer));
    rows_[item.row].choices.push_back(&chosen);
  }

  void add(const AttendItem& item, const Range& tokens) {
    if (tokens.begin < tokens.end) rows_[item.row].pieces.push_back({item.kv_heads, tokens});
  }

  /// No token twice for a head; the pieces from `before` on are the item's.
  void check_disjoint(const AttendItem& item, std::size_t before) const {
    const std::vector<Piece>& pieces = rows_[item.row].pieces;
    for (std::size_t i = before; i < pieces.size(); ++i) {
      for (std::size_t j = 0; j < before; ++j) {
        const Range &a = pieces[i].tokens, &b = pieces[j].tokens;
        TANDEM_CHECK(!overlap(a, b) || !overlap(pieces[i].heads, pieces[j].heads),
                     "a plan attends tokens [{}, {}) of row {} twice: they are in [{}, {}) and in [{}, {})",
                     std::max(a.begin, b.begin), std::min(a.end, b.end), item.row, b.begin, b.end, a.begin, a.end);
      }
    }
  }

  /// Twice is check_disjoint()'s.
  void check_own_token(std::uint32_t row) const {
    for (std::uint32_t head = 0; head < context_.shape.kv_heads; ++head) {
      const auto has = [&](const Range& heads) { return heads.begin <= head && head < heads.end; };
      TANDEM_CHECK(std::any_of(rows_[row].own.begin(), rows_[row].own.end(), has),
                   "a plan leaves out the step's own token, {} of row {}, for KV head {}",
                   context_.batch[row]->tokens - 1, row, head);
    }
  }

  /// An index holds one choice at a time.
  static void check_choices(const std::vector<const SelectionRef*>& choices) {
    for (std::size_t i = 0; i < choices.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        TANDEM_CHECK(choices[i]->digests.id != choices[j]->digests.id || choices[i]->ready == choices[j]->ready,
                     "a plan attends two choices of one digest index, of which the later one has replaced the other: "
                     "build an index for each");
  }

  const LayerContext& context_;
  const AttendPlan& plan_;
  const SequenceStores& stores_;
  std::vector<Row> rows_;
};

}  // namespace

void check_plan(const LayerContext& context, const AttendPlan& plan, const SequenceStores& stores) {
  PlanCheck(context, plan, stores).run();
}

}  // namespace tandem
