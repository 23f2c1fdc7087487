#include "eval/match_bytes/match_bytes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <fmt/ranges.h>
#include <limits>
#include <map>

#include "engine/common/read_file.h"
#include "eval/report/json_fields.h"
#include "eval/run/decoded.h"

namespace tandem::eval {
namespace {

constexpr std::uint32_t kShares = 1000;         // steps of an option that is a share
constexpr std::uint32_t kErrorsPerDecade = 40;  // steps of an option that is an error, ...
constexpr std::uint32_t kErrorDecades = 4;      // ... from 1 down to 1e-4

/// The values of an option as numbers 1 .. count, each with at least as many bytes as the one before.
struct Values {
  std::uint32_t count;
  std::function<std::string(std::uint32_t number)> text;
};

Values values_of(const BudgetOption& o, std::uint32_t most_tokens) {
  switch (o.scale) {
    case BudgetOption::Scale::tokens:
      return {1 + (std::max(most_tokens, o.least) - o.least + o.step - 1) / o.step,
              [&o](std::uint32_t n) { return std::to_string(o.least + std::uint64_t{n - 1} * o.step); }};
    case BudgetOption::Scale::share:
      return {kShares, [](std::uint32_t n) { return fmt::format("{}", double(n) / kShares); }};
    case BudgetOption::Scale::error:
      return {kErrorDecades * kErrorsPerDecade + 1,
              [](std::uint32_t n) { return fmt::format("{:.3g}", std::pow(10, -double(n - 1) / kErrorsPerDecade)); }};
    case BudgetOption::Scale::listed:
      break;
  }
  return {static_cast<std::uint32_t>(o.values.size()), [&o](std::uint32_t n) { return o.values[n - 1]; }};
}

/// Whether the method takes the value: some have a least budget.
bool is_possible(const std::string& spec) {
  try {
    make_method(spec);
    return true;
  } catch (const InputError&) {
    return false;
  }
}

class Search {
 public:
  Search(std::uint32_t most_tokens, const BytesOf& bytes_of) : most_tokens_(most_tokens), bytes_of_(bytes_of) {}

  const Bytes& ask(const std::string& spec) {
    const auto known = known_.find(spec);
    return known != known_.end() ? known->second : known_.emplace(spec, bytes_of_(spec)).first->second;
  }

  EqualMethod unset(const std::string& given) {
    const Bytes& found = ask(given);
    if (!found.refused.empty()) return {given, given, "", found.refused, std::nullopt, Fit::refused};
    return {given, given, "", "", found.bytes, Fit::as_given};
  }

  /// Fit::as_given and Fit::refused: there is nothing to set, whatever the target.
  EqualMethod set(const std::string& given, const BudgetOption& option, double target) {
    const Values values = values_of(option, most_tokens_);
    const auto spec_at = [&](std::uint32_t number) { return with_option(given, option.option, values.text(number)); };
    const auto at = [&](std::uint32_t number) {
      EqualMethod m{given, spec_at(number), option.option, values.text(number)};
      const Bytes& found = ask(m.spec);
      m.fit = found.refused.empty() ? Fit::set : Fit::refused;
      if (m.fit == Fit::set) m.bytes = found.bytes;
      return m;
    };
    if (!is_possible(spec_at(values.count))) return unset(given);
    // The least value that the method takes: it takes all above.
    std::uint32_t impossible = 0, least = values.count;
    while (least - impossible > 1) {
      const std::uint32_t middle = impossible + (least - impossible) / 2;
      (is_possible(spec_at(middle)) ? least : impossible) = middle;
    }
    EqualMethod low = at(least), high = at(values.count);
    if (low.fit == Fit::refused || high.fit == Fit::refused || low.bytes == high.bytes) return unset(given);
    const auto as = [](EqualMethod method, Fit fit) {
      method.fit = fit;
      return method;
    };
    if (low.bytes >= target) return as(low, low.bytes > target ? Fit::least : Fit::set);
    if (high.bytes <= target) return as(high, high.bytes < target ? Fit::most : Fit::set);
    // low.bytes < target < high.bytes from here on.
    std::uint32_t below = least, above = values.count;
    while (above - below > 1) {
      const std::uint32_t middle = below + (above - below) / 2;
      EqualMethod m = at(middle);
      (m.bytes < target ? below : above) = middle;
      if (m.bytes) (m.bytes < target ? low : high) = std::move(m);
    }
    return target - low.bytes.value_or(0) < high.bytes.value_or(0) - target ? low : high;
  }

 private:
  const std::uint32_t most_tokens_;
  const BytesOf& bytes_of_;
  std::map<std::string, Bytes> known_;
};

double parse_share(std::string_view text, std::string_view whole, std::string_view option) {
  const bool percent = text.ends_with('%');
  const std::string_view number = percent ? text.substr(0, text.size() - 1) : text;
  double value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (percent) value /= 100;
  if (error != std::errc{} || end != number.data() + number.size() || !(value > 0 && value <= 1))
    throw_input_error("{} is '{}': '{}' is no share of what {} comes to; give 0.1 or 10%, above 0 and at most 1.",
                      option, whole, text, kReference);
  return value;
}

constexpr int kEqualVersion = 1;
constexpr std::array<const char*, 5> kFits = {"set", "least", "most", "as given", "refused"};  // by Fit

constexpr double kMostBytes = std::numeric_limits<double>::max();

constexpr auto kVisitMethod = [](auto& f, auto& method) {
  f.filled("given", method.given);
  f.filled("method", method.spec);
  f.field("option", method.option);
  f.field("value", method.value);
  f.number("bytes", method.bytes, 0, kMostBytes);
  f.one_of("fit", method.fit, kFits);
};

constexpr auto kVisitEqual = [](auto& f, auto& equal, auto& asked) {
  int version = kEqualVersion;
  std::string reference = kReference;
  f.field("schema_version", version);
  f.require(version == kEqualVersion, "schema_version", "1");
  f.field("asked", asked);
  f.field("given", equal.given);
  f.field("reference", reference);
  f.require(reference == kReference, "reference", kReference);
  f.number("reference_bytes", equal.reference_bytes, 0, kMostBytes);
  f.list("as_given", equal.as_given, kVisitMethod);
  f.list("shares", equal.shares, [](auto& in, auto& share) {
    in.number("share", share.share, 0, 1);
    in.list("methods", share.methods, kVisitMethod);
  });
};

}  // namespace

const char* to_string(Measure measure) {
  return measure == Measure::touched ? "touched-bytes" : "device-bytes";
}

EqualBytes parse_equal_bytes(std::string_view text, std::string_view option) {
  const std::size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  EqualBytes asked;
  if (name == to_string(Measure::device)) {
    asked.measure = Measure::device;
  } else if (name != to_string(Measure::touched) || equals == std::string_view::npos) {
    throw_input_error("{} is '{}': give touched-bytes=SHARES or device-bytes=SHARES, such as touched-bytes=0.05,0.1.",
                      option, text);
  }
  if (equals == std::string_view::npos)
    throw_input_error("{} is '{}': say of how much, such as {}=0.25 for a quarter of what {} comes to.", option, text,
                      text, kReference);
  for (std::size_t at = equals, end = 0; at != std::string_view::npos; at = end) {
    end = text.find(',', at + 1);
    const double share = parse_share(text.substr(at + 1, end - at - 1), text, option);
    if (std::ranges::find(asked.shares, share) != asked.shares.end())
      throw_input_error("{} is '{}': {} is listed twice.", option, text, share);
    asked.shares.push_back(share);
  }
  return asked;
}

std::string to_text(const EqualBytes& asked) {
  return fmt::format("{}={}", to_string(asked.measure), fmt::join(asked.shares, ","));
}

std::vector<std::string> Equal::specs() const {
  std::vector<EqualMethod> all = as_given;
  for (const EqualShare& share : shares) all.insert(all.end(), share.methods.begin(), share.methods.end());
  const auto first = std::ranges::find(all, given.front(), &EqualMethod::given);
  if (first != all.end()) std::rotate(all.begin(), first, first + 1);
  std::vector<std::string> specs;
  for (const EqualMethod& method : all)
    if (std::ranges::find(specs, method.spec) == specs.end()) specs.push_back(method.spec);
  return specs;
}

std::optional<BudgetOption> budget_option(std::string_view spec, Measure measure) {
  const MethodSpec spelled = parse_method_spec(make_method(spec)->spelled_out());
  for (const BudgetOption& option : find_method(spelled.name).budget_options) {
    if (!(measure == Measure::touched ? option.turns_touched : option.turns_device)) continue;
    const std::pair<std::string, std::string> needed(option.where, option.is);
    const bool always = option.where.empty();
    if (always || std::ranges::find(spelled.options, needed) != spelled.options.end()) return option;
  }
  return std::nullopt;
}

std::string with_option(std::string_view spec, std::string_view option, std::string_view value) {
  const MethodSpec parsed = parse_method_spec(spec);
  std::vector<std::string> parts;
  for (const auto& [name, old] : parsed.options)
    if (name != option) parts.push_back(fmt::format("{}={}", name, old));
  if (!value.empty()) parts.push_back(fmt::format("{}={}", option, value));
  return parts.empty() ? parsed.name : fmt::format("{}:{}", parsed.name, fmt::join(parts, ","));
}

Equal find_equal(const EqualBytes& asked, const std::vector<std::string>& methods, std::uint32_t most_tokens,
                 const BytesOf& bytes_of) {
  Search search(most_tokens, bytes_of);
  const Bytes& reference = search.ask(kReference);
  if (!reference.refused.empty())
    throw_input_error("{} cannot be run, so that nothing is a share of it: {}", kReference, reference.refused);
  Equal equal{asked, methods, reference.bytes, {}, {}};
  for (const double share : asked.shares) equal.shares.push_back({share, {}});
  std::map<std::string, std::string> seen;  // without what is set: as given
  for (const std::string& method : methods) {
    const std::optional<BudgetOption> option = budget_option(method, asked.measure);
    const auto [other, is_new] = seen.emplace(option ? with_option(method, option->option, "") : method, method);
    if (!is_new && other->second == method) throw_input_error("Method '{}' is listed twice.", method);
    if (!is_new)
      throw_input_error("Methods '{}' and '{}' differ only in {}, which is what is set: give one of them.",
                        other->second, method, option->option);
    std::vector<EqualMethod> set;
    for (const double share : asked.shares)
      if (option) set.push_back(search.set(method, *option, share * equal.reference_bytes));
    const bool turns = !set.empty() && set.front().fit != Fit::as_given && set.front().fit != Fit::refused;
    if (!turns) equal.as_given.push_back(search.unset(method));
    for (std::size_t i = 0; turns && i < set.size(); ++i) equal.shares[i].methods.push_back(std::move(set[i]));
  }
  return equal;
}

std::uint64_t most_questions(const EqualBytes& asked, const std::vector<std::string>& methods,
                             std::uint32_t most_tokens) {
  std::uint64_t sum = 1;  // the reference
  for (const std::string& method : methods) {
    ++sum;
    if (const auto option = budget_option(method, asked.measure))
      sum += 2 + asked.shares.size() * std::bit_width(values_of(*option, most_tokens).count);
  }
  return sum;
}

std::string equal_json(const Equal& equal) {
  nlohmann::ordered_json json;
  ObjectWriter out(json);
  const std::string asked = to_text(equal.asked);
  kVisitEqual(out, equal, asked);
  return json.dump(2) + "\n";
}

std::optional<Equal> read_equal(const std::filesystem::path& folder, const EqualBytes& asked,
                                const std::vector<std::string>& methods) {
  const std::filesystem::path file = folder / kEqualFile;
  if (!path_exists(file)) return std::nullopt;
  const std::string text = read_file(file), where = file.string();
  try {
    const nlohmann::ordered_json json = parse_object(text, where);
    ObjectReader in(json, where);
    Equal equal;
    std::string asked_text;
    kVisitEqual(in, equal, asked_text);
    in.finish();
    equal.asked = parse_equal_bytes(asked_text, where + ": the field 'asked'");
    for (const EqualMethod& method : equal.as_given) make_method(method.spec);
    for (const EqualShare& share : equal.shares)
      for (const EqualMethod& method : share.methods) make_method(method.spec);
    if (equal.asked == asked && equal.given == methods) return equal;
  } catch (const InputError&) {
    // Found anew, and written over: the run itself says whether it can go on.
  }
  return std::nullopt;
}

BytesOfPrompts::BytesOfPrompts(std::span<const DatasetSample> samples, const DatasetRunOptions& options,
                               const Model& model, Device& device, ThreadPool& pool)
    : batch_(options.batch), engine_(model, device, pool, engine_options_of(options, model)) {
  std::size_t bytes = 0;
  for (const DatasetSample& sample : samples) {
    bytes += prompt_kv_bytes(options.engine, model, static_cast<std::uint32_t>(sample.prompt.size()));
    if (!requests_.empty() && bytes > options.engine.kv.device_bytes / 2) break;
    prefixes_.push_back(engine_.prefill(sample.prompt));
    requests_.push_back({prefixes_.back().get(), sample.max_new_tokens, sample.stop_tokens});
  }
}

BytesOfPrompts::~BytesOfPrompts() {
  for (const auto& prefix : prefixes_) engine_.release(*prefix);
}

double BytesOfPrompts::operator()(const std::string& spec, Measure measure) {
  const std::unique_ptr<Method> method = make_method(spec);
  double touched = 0, steps = 0, peak = 0;
  for (std::size_t first = 0; first < requests_.size(); first += batch_) {
    const std::span<const DecodeRequest> batch =
        std::span(requests_).subspan(first, std::min<std::size_t>(batch_, requests_.size() - first));
    const DecodeResult result = engine_.decode(*method, batch);
    for (std::size_t row = 0; row < batch.size(); ++row) {
      const SampleTiming timing = timing_of({}, result, row, 0, engine_.device().clock_name());
      touched += static_cast<double>(timing.bytes.touched);
      steps += timing.steps;
      peak = std::max(peak, static_cast<double>(timing.device_kv_bytes));
    }
  }
  return measure == Measure::touched ? touched / steps : peak;
}

}  // namespace tandem::eval
