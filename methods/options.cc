#include "methods/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <fmt/format.h>

#include "engine/common/error.h"
#include "engine/common/trimmed.h"

namespace tandem {
namespace {

constexpr std::uint64_t kMostOptionTokens = std::uint64_t{1} << 30;  // sums and rounded values of these fit 32 bits

bool parse_tokens(const std::string& text, std::uint32_t& out) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end == text.data()) return false;
  const std::string_view rest(end, static_cast<std::size_t>(text.data() + text.size() - end));
  if (rest == "K" || rest == "k") {
    if (value > kMostOptionTokens / 1024) return false;
    value *= 1024;
  } else if (!rest.empty()) {
    return false;
  }
  if (value > kMostOptionTokens) return false;
  out = static_cast<std::uint32_t>(value);
  return true;
}

bool parse_double(const std::string& text, double& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc{} && end == text.data() + text.size() && std::isfinite(out);
}

}  // namespace

MethodSpec parse_method_spec(std::string_view text) {
  MethodSpec spec;
  const std::size_t colon = text.find(':');
  spec.name = std::string(text.substr(0, colon));
  if (spec.name.empty()) throw_input_error("A method name is missing in '{}': write name or name:option=value.", text);
  if (colon == std::string_view::npos) return spec;
  std::string_view rest = text.substr(colon + 1);
  while (true) {
    const std::size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == part.size()) {
      throw_input_error("'{}' in method '{}' is not option=value.", part, text);
    }
    spec.options.emplace_back(part.substr(0, equals), part.substr(equals + 1));
    if (comma == std::string_view::npos) return spec;
    rest.remove_prefix(comma + 1);
  }
}

std::vector<std::string> split_method_list(std::string_view text) {
  std::vector<std::string> specs;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view part = trimmed(text.substr(0, comma));
    const bool continues = !specs.empty() && specs.back().find(':') != std::string::npos &&
                           part.find('=') != std::string_view::npos && part.find(':') == std::string_view::npos;
    if (continues) {
      specs.back() += ",";
      specs.back() += part;
    } else {
      specs.emplace_back(part);
    }
    if (comma == std::string_view::npos) return specs;
    text.remove_prefix(comma + 1);
  }
}

std::uint32_t TokenShare::of(std::uint32_t total) const {
  return tokens > 0 ? tokens : static_cast<std::uint32_t>(std::ceil(ratio * total - 1e-9));
}

void OptionSet::add(OptionInfo info, std::function<bool(const std::string&)> set, std::function<std::string()> get) {
  info.default_value = get();
  entries_.push_back({std::move(info), std::move(set), std::move(get)});
}

void OptionSet::tokens(std::string name, std::uint32_t& value, std::string help) {
  count(std::move(name), value, "tokens", std::move(help));
}

void OptionSet::count(std::string name, std::uint32_t& value, std::string what, std::string help) {
  add(
      {std::move(name), std::move(what), "", std::move(help)},
      [&value](const std::string& text) { return parse_tokens(text, value); },
      [&value] { return fmt::format("{}", value); });
}

void OptionSet::ratio(std::string name, double& value, double above, double most, std::string help) {
  add(
      {std::move(name), fmt::format("above {}, at most {}", above, most), "", std::move(help)},
      [&value, above, most](const std::string& text) {
        return parse_double(text, value) && value > above && value <= most;
      },
      [&value] { return fmt::format("{}", value); });
}

void OptionSet::number(std::string name, double& value, double least, double most, std::string help) {
  add(
      {std::move(name), fmt::format("{} to {}", least, most), "", std::move(help)},
      [&value, least, most](const std::string& text) {
        return parse_double(text, value) && value >= least && value <= most;
      },
      [&value] { return fmt::format("{}", value); });
}

void OptionSet::share(std::string name, TokenShare& value, std::string help) {
  add(
      {std::move(name), "ratio up to 1, or tokens", "", std::move(help)},
      [&value](const std::string& text) {
        double ratio = 0;
        if (parse_double(text, ratio) && ratio <= 1) {
          value = {ratio, 0};
          return ratio > 0;
        }
        value.ratio = 0;
        return parse_tokens(text, value.tokens) && value.tokens > 0;
      },
      [&value] { return value.tokens > 0 ? fmt::format("{}", value.tokens) : fmt::format("{}", value.ratio); });
}

void OptionSet::choice(std::string name, std::string& value, std::vector<std::string> choices, std::string help) {
  std::string type = fmt::format("{}", fmt::join(choices, "|"));
  add(
      {std::move(name), std::move(type), "", std::move(help)},
      [&value, choices = std::move(choices)](const std::string& text) {
        if (std::find(choices.begin(), choices.end(), text) == choices.end()) return false;
        value = text;
        return true;
      },
      [&value] { return value; });
}

void OptionSet::number_of(std::string name, std::uint32_t& value, std::vector<std::uint32_t> choices,
                          std::string help) {
  std::string type = fmt::format("{}", fmt::join(choices, "|"));
  add(
      {std::move(name), std::move(type), "", std::move(help)},
      [&value, choices = std::move(choices)](const std::string& text) {
        std::uint32_t parsed = 0;
        if (!parse_tokens(text, parsed) || std::find(choices.begin(), choices.end(), parsed) == choices.end())
          return false;
        value = parsed;
        return true;
      },
      [&value] { return fmt::format("{}", value); });
}

void OptionSet::value(std::string name, std::string type, std::string help, std::function<bool(const std::string&)> set,
                      std::function<std::string()> get) {
  add({std::move(name), std::move(type), "", std::move(help)}, std::move(set), std::move(get));
}

void OptionSet::parse(const MethodSpec& spec) {
  std::vector<std::string> seen;
  for (const auto& option : spec.options) {
    const std::string &name = option.first, &value = option.second;
    const auto entry =
        std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.info.name == name; });
    if (entry == entries_.end()) {
      std::vector<std::string> names;
      names.reserve(entries_.size());
      for (const Entry& e : entries_) names.push_back(e.info.name);
      throw_input_error("Method '{}' has no option '{}'.{} {}", method_, name, did_you_mean(name, names),
                        names.empty() ? std::string("It has none.") : "It has: " + join_names(names) + ".");
    }
    if (std::find(seen.begin(), seen.end(), name) != seen.end()) {
      throw_input_error("Option '{}' of method '{}' is given twice.", name, method_);
    }
    seen.push_back(name);
    if (!entry->set(value)) {
      throw_input_error("Option '{}' of method '{}' is '{}', which is not allowed: it takes {} ({}).", name, method_,
                        value, entry->info.type, entry->info.help);
    }
  }
}

std::vector<OptionInfo> OptionSet::describe() const {
  std::vector<OptionInfo> out;
  out.reserve(entries_.size());
  for (const Entry& e : entries_) out.push_back(e.info);
  return out;
}

std::string OptionSet::spelled_out() const {
  std::string out = method_;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    out += fmt::format("{}{}={}", i == 0 ? ":" : ",", entries_[i].info.name, entries_[i].get());
  }
  return out;
}

}  // namespace tandem
