// The sections of comparisons at equal bytes: what a run came to, and what was found before anything ran.
#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>

#include "eval/match_bytes/match_bytes.h"
#include "eval/report/table.h"

namespace tandem::eval {
namespace {

constexpr double kNoticeable = 0.05;  // off by more than this is said below the table

std::string percent(double share) {
  return 100 * share < 0.95 ? fmt::format("{:.2g}", 100 * share) : fmt::format("{:.1f}", 100 * share);
}

/// Rows of a section, with what share each is of: methods as they were given, then those of each share, then the least
/// and the largest budgets of those that do not come to a share, each once; share 0 for the first and the last.
std::vector<std::pair<const EqualMethod*, double>> rows_of(const Equal& equal) {
  std::vector<std::pair<const EqualMethod*, double>> rows;
  rows.reserve(equal.as_given.size());
  for (const EqualMethod& method : equal.as_given) rows.emplace_back(&method, 0);
  for (const Fit fit : {Fit::set, Fit::least, Fit::most}) {
    std::vector<std::string> told;
    for (const EqualShare& share : equal.shares) {
      for (const EqualMethod& method : share.methods) {
        if (method.fit != fit || std::ranges::find(told, method.spec) != told.end()) continue;
        if (fit != Fit::set) told.push_back(method.spec);
        rows.emplace_back(&method, fit == Fit::set ? share.share : 0);
      }
    }
  }
  return rows;
}

class Section {
 public:
  /// `whole`: bytes that shares are of. `more`: heads of columns behind the methods' bytes.
  Section(const Equal& equal, double whole, std::vector<std::string> more) : equal_(equal), whole_(whole) {
    table_.leading = 2;
    table_.head = {"asked, %", "method", fmt::format("of {}'s bytes, %", kReference)};
    table_.head.insert(table_.head.end(), more.begin(), more.end());
  }

  void add(const EqualMethod& method, double share, const std::string& label, const std::optional<double>& bytes,
           std::vector<std::string> more) {
    any_least_ = any_least_ || method.fit == Fit::least;
    any_most_ = any_most_ || method.fit == Fit::most;
    std::optional<double> of_whole;
    if (bytes) of_whole = ratio(*bytes, whole_);
    std::vector<std::string>& row = table_.rows.emplace_back();
    constexpr std::array<const char*, 5> kInPlaceOfAShare = {"", "least", "most", "-", "refused"};
    row = {method.fit == Fit::set ? percent(share) : kInPlaceOfAShare.at(static_cast<std::size_t>(method.fit)), label,
           figure_text(of_whole, percent)};
    row.insert(row.end(), more.begin(), more.end());
    if (method.fit == Fit::refused)
      refused_ += fmt::format(" {} is refused: {}{}", label, method.value, method.value.ends_with('.') ? "" : ".");
    any_as_given_ = any_as_given_ || method.fit == Fit::as_given;
    if (method.fit == Fit::set && of_whole && std::abs(*of_whole / share - 1) > kNoticeable)
      off_ += fmt::format("{}{}{}", off_.empty() ? "" : ", ", label,
                          equal_.shares.size() > 1 ? fmt::format(" at {}", percent(share)) : "");
  }

  /// `how`: sentences on where the bytes are from.
  std::string text(const std::string& how, bool markdown) const {
    const bool touched = equal_.asked.measure == Measure::touched;
    std::string notes = fmt::format("Shares are of what {} {}: {:.4g} MB{}. {}", kReference,
                                    touched ? "touches of the context for a token" : "keeps on the device",
                                    1e-6 * whole_, touched ? "" : ", at its peak", how);
    if (any_as_given_)
      notes += fmt::format(" Without a share: methods as they were given, no option of which sets {}.",
                           touched ? "what they touch" : "what they keep there");
    const char* some = equal_.shares.size() > 1 ? "some of the shares" : "the share";
    if (any_least_) notes += fmt::format(" Least: the method's least budget, which comes to more than {}.", some);
    if (any_most_) notes += fmt::format(" Most: the method's largest budget, which comes to less than {}.", some);
    if (!off_.empty())
      notes += fmt::format(
          " Off by more than {:.0f} % of the share, where steps of the budget are coarse or samples "
          "differ: {}.",
          100 * kNoticeable, off_);
    notes += refused_;
    return section(touched ? "At equal bytes touched" : "At equal bytes on the device", markdown) +
           text_of(table_, markdown) + note(notes, markdown);
  }

 private:
  const Equal& equal_;
  const double whole_;
  Table table_;
  std::string off_, refused_;
  bool any_as_given_ = false, any_least_ = false, any_most_ = false;
};

const MethodSummary* find(const Summary& s, const std::string& spec) {
  const auto found = std::ranges::find(s.methods, spec, &MethodSummary::label);
  return found == s.methods.end() ? nullptr : &*found;
}

}  // namespace

std::string equal_text(const Equal& equal, const Summary& summary, bool markdown) {
  const std::vector<std::string> labels = labels_of(summary, markdown);
  const auto label_of = [&](const MethodSummary& m) {
    return labels[static_cast<std::size_t>(&m - summary.methods.data())];
  };
  const auto bytes_of = [&](const MethodSummary& m) -> std::optional<double> {
    if (!m.latency) return std::nullopt;
    return equal.asked.measure == Measure::touched ? m.latency->touched
                                                   : static_cast<double>(m.latency->peak_device_kv);
  };
  const MethodSummary* full = find(summary, kReference);
  const double here = full == nullptr ? 0 : bytes_of(*full).value_or(0);
  const bool same_run = here > 0;
  Section rows(equal, same_run ? here : equal.reference_bytes,
               {"accuracy, % [95\u00a0%]",
                fmt::format("difference to {}, points [95\u00a0%]", baseline_label(summary, labels))});
  for (const auto& [method, share] : rows_of(equal))
    if (const MethodSummary* m = find(summary, method->spec))  // else there is no sample of it yet
      rows.add(*method, share, label_of(*m), bytes_of(*m),
               {accuracy_text(m->overall.accuracy), difference_text(m->overall)});
  return rows.text(fmt::format("Budgets were set on the first sample of some or all tasks by their bytes alone; the "
                               "column is what came of it in this run{}.",
                               same_run ? "" : fmt::format(", of what {} comes to on those samples", kReference)),
                   markdown);
}

std::string equal_found_text(const Equal& equal, const std::string& how, bool markdown) {
  Section rows(equal, equal.reference_bytes, {"set"});
  for (const auto& [method, share] : rows_of(equal)) {
    const bool set = !method->option.empty();
    rows.add(*method, share, set ? with_option(method->given, method->option, "") : method->given, method->bytes,
             {set ? fmt::format("{}={}", method->option, method->value) : "-"});
  }
  return rows.text(how, markdown);
}

}  // namespace tandem::eval
