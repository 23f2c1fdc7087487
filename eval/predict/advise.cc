#include "eval/predict/advise.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "eval/predict/text.h"

namespace tandem::eval {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

bool covers(const Loss& loss, std::uint32_t context) {
  return context >= loss.shortest * (1 - kSameLength) && context <= loss.longest * (1 + kSameLength);
}

/// How far the prompts' lengths are from the context, as a log of their ratio; 0 where they cover it.
double distance(const Loss& loss, std::uint32_t context) {
  if (covers(loss, context)) return 0;
  const std::uint32_t end = context < loss.shortest ? loss.shortest : loss.longest;
  return std::abs(std::log(double(context) / end));
}

/// Share of the context that a predicted step attends; 0 where the prediction does not say.
double share_of(const SweepPoint& point) {
  return point.context == 0 ? 0 : (point.row.attended_device + point.row.attended_host) / point.context;
}

/// Whether a loss is one of the method's budget at this context.
bool same_budget(const Loss& loss, double share, std::uint32_t context) {
  if (loss.exact && (loss.any_length || covers(loss, context))) return true;
  return loss.share > 0 && share > 0 && std::max(loss.share / share, share / loss.share) <= kSameShare;
}

/// Whether a method that attends this share is taken to lose no less: a larger share loses no more.
bool speaks_against(const Loss& loss, double share, std::uint32_t context) {
  return same_budget(loss, share, context) || (share > 0 && loss.share * kSameShare >= share);
}

bool is_of_model(const Loss& loss, const std::string& model) {
  return lower(loss.model).starts_with(lower(model));
}

const Loss* largest(const std::vector<const Loss*>& losses) {
  return losses.empty() ? nullptr : *std::ranges::max_element(losses, {}, &Loss::points);
}

Loss expected_loss(const SweepPoint& point, const std::vector<const Loss*>& own, const AdviceLimits& limits) {
  Loss none;
  none.method = point.method;
  none.shortest = none.longest = limits.context;
  none.kind = point.lossless ? LossKind::construction : LossKind::unknown;
  if (point.lossless) return none;
  for (const LossKind kind : {LossKind::yours, LossKind::run, LossKind::paper}) {
    std::vector<const Loss*> there;
    std::ranges::copy_if(own, std::back_inserter(there), [&](const Loss* loss) {
      return loss->kind == kind && covers(*loss, limits.context) && same_budget(*loss, share_of(point), limits.context);
    });
    const auto other_model = [&](const Loss* loss) { return !is_of_model(*loss, limits.model); };
    if (kind == LossKind::paper && !std::ranges::all_of(there, other_model)) std::erase_if(there, other_model);
    if (const Loss* loss = largest(there)) return *loss;
  }
  return none;
}

std::optional<Loss> nearest_measured(const SweepPoint& point, const std::vector<const Loss*>& own,
                                     std::uint32_t context) {
  for (const LossKind kind : {LossKind::yours, LossKind::run}) {
    std::vector<const Loss*> there;
    std::ranges::copy_if(own, std::back_inserter(there), [&](const Loss* loss) {
      return loss->kind == kind && speaks_against(*loss, share_of(point), context);
    });
    if (there.empty()) continue;
    const auto far = [&](const Loss* loss) { return distance(*loss, context); };
    const double least = far(*std::ranges::min_element(there, {}, far));
    std::erase_if(there, [&](const Loss* loss) { return far(loss) > least; });
    return *largest(there);
  }
  return std::nullopt;
}

Judged judge(const SweepPoint& point, const std::vector<Loss>& losses, const AdviceLimits& limits) {
  std::vector<const Loss*> own;
  for (const Loss& loss : losses)
    if (loss.method == point.method) own.push_back(&loss);
  Judged judged;
  judged.point = point;
  judged.fits = point.row.refused.empty() && double(point.row.device_kv_bytes) <= limits.device_kv_bytes &&
                double(point.row.host_kv_bytes) <= limits.host_kv_bytes;
  judged.expected = expected_loss(point, own, limits);
  if (!point.lossless) judged.nearest = nearest_measured(point, own, limits.context);
  judged.admitted_from = judged.expected.kind == LossKind::unknown ? kNever : judged.expected.points;
  if (judged.nearest) judged.admitted_from = std::max(judged.admitted_from, judged.nearest->points);
  return judged;
}

double step_of(const Judged& judged) {
  return judged.point.row.step_ms > 0 ? judged.point.row.step_ms : kNever;
}

/// Whether the slowest of the faster is still faster than the fastest of the other; not where one has no range.
bool apart(const PredictedRow& faster, const PredictedRow& other) {
  return faster.step_high_ms > 0 && other.step_low_ms > 0 && faster.step_high_ms < other.step_low_ms;
}

}  // namespace

Advice recommend(const std::vector<SweepPoint>& predictions, const std::vector<Loss>& losses,
                 const AdviceLimits& limits) {
  Advice advice;
  advice.limits = limits;
  advice.methods.reserve(predictions.size());
  for (const SweepPoint& point : predictions) advice.methods.emplace_back(judge(point, losses, limits));
  std::ranges::stable_sort(advice.methods, {}, step_of);
  const auto& methods = advice.methods;
  for (std::size_t i = 0; i < methods.size(); ++i) {
    if (!methods[i].admitted(limits.lose)) continue;
    if (!advice.first) {
      advice.first = i;
    } else if (!advice.second) {
      advice.second = i;
    }
  }
  const Judged *first = advice.at(advice.first), *second = advice.at(advice.second);
  if (first != nullptr && second != nullptr) advice.order_is_certain = apart(first->point.row, second->point.row);
  std::vector<std::size_t>& higher = advice.with_higher_limit;
  for (std::size_t i = 0; i < methods.size(); ++i) {
    const Judged& m = methods[i];
    if (!m.fits) {
      const bool too_large = m.point.row.refused.empty() || m.point.row.too_large;
      if (too_large && m.admitted_from <= limits.lose) advice.do_not_fit.push_back(i);
      continue;
    }
    if (m.admitted(limits.lose) || (first != nullptr && step_of(m) >= step_of(*first))) continue;
    if (std::isfinite(m.admitted_from)) higher.push_back(i);
    if (m.loses_more(limits.lose)) {
      advice.lose_more.push_back(i);
    } else if (m.expected.kind == LossKind::unknown) {
      advice.not_known.push_back(i);
    }
  }
  // The fastest first, until here: a limit that admits one admits all slower ones that need no more, so those go.
  double least = kNever;
  std::erase_if(higher, [&](std::size_t i) {
    const bool keep = methods[i].admitted_from < least;
    least = std::min(least, methods[i].admitted_from);
    return !keep;
  });
  std::ranges::reverse(higher);
  return advice;
}

}  // namespace tandem::eval
