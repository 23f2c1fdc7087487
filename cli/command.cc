#include "cli/command.h"

#include <CLI/CLI.hpp>
#include <limits>
#include <utility>

#include "engine/common/error.h"
#include "eval/run/option_values.h"

namespace tandem::cli {
namespace {

/// Nothing is no name, text or list: it would be taken for an option that was not given. Nor is the option that follows
/// where a value was forgotten, which CLI11 would take for it.
Option text(const CLI::App& app, CLI::Option* option) {
  option->check(
      [&app, name = option->get_name()](const std::string& value) {
        if (value.empty()) throw_input_error("{} is empty: give a value, or leave it away.", name);
        if (value.starts_with('-') && app.get_option_no_throw(value) != nullptr)
          throw_input_error("{} has no value: '{}' is an option of its own.", name, value);
        return std::string();
      },
      "");
  return Option(option);
}

/// CLI11 would take 010 for 8, and what is beyond 64 bits for the largest number.
template <class Number>
Option whole_number(CLI::Option* option) {
  option->transform(
      [name = option->get_name()](const std::string& value) {
        return std::to_string(eval::parse_count(value, name, 0, std::numeric_limits<Number>::max()));
      },
      "");
  return Option(option);
}

/// CLI11 would take an empty text, which is what a script's unset variable gives, for 0, and the first digits of some.
Option real_number(CLI::Option* option) {
  option->transform(
      [name = option->get_name()](const std::string& value) {
        eval::parse_real(value, name);
        return value;
      },
      "");
  return Option(option);
}

}  // namespace

Option Option::required() {
  option_->required();
  return *this;
}

Option Option::show_default() {
  option_->capture_default_str();
  return *this;
}

Option Option::repeatable() {
  option_->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->allow_extra_args(false);
  return *this;
}

Option Option::comma_separated() {
  option_->delimiter(',');
  return *this;
}

Command Command::subcommand(const std::string& name, const std::string& help) {
  return Command(*app_->add_subcommand(name, help));
}

void Command::require_subcommand() {
  app_->require_subcommand(1);
}

void Command::footer(const std::string& text) {
  app_->footer(text);
}

void Command::callback(std::function<void()> work) {
  app_->callback(std::move(work));
}

Option Command::option(const std::string& name, std::string& value, const std::string& help) {
  return text(*app_, app_->add_option(name, value, help));
}

Option Command::option(const std::string& name, std::uint32_t& value, const std::string& help) {
  return whole_number<std::uint32_t>(app_->add_option(name, value, help));
}

Option Command::option(const std::string& name, std::uint64_t& value, const std::string& help) {
  return whole_number<std::uint64_t>(app_->add_option(name, value, help));
}

Option Command::option(const std::string& name, float& value, const std::string& help) {
  return real_number(app_->add_option(name, value, help));
}

Option Command::option(const std::string& name, double& value, const std::string& help) {
  return real_number(app_->add_option(name, value, help));
}

Option Command::option(const std::string& name, std::optional<std::uint32_t>& value, const std::string& help) {
  return whole_number<std::uint32_t>(app_->add_option(name, value, help));
}

Option Command::option(const std::string& name, std::optional<std::uint64_t>& value, const std::string& help) {
  return whole_number<std::uint64_t>(app_->add_option(name, value, help));
}

Option Command::option(const std::string& name, std::optional<double>& value, const std::string& help) {
  return real_number(app_->add_option(name, value, help));
}

Option Command::option(const std::string& name, std::vector<std::string>& value, const std::string& help) {
  return text(*app_, app_->add_option(name, value, help));
}

Option Command::option(const std::string& name, std::vector<double>& value, const std::string& help) {
  return real_number(app_->add_option(name, value, help));
}

void Command::flag(const std::string& name, bool& value, const std::string& help) {
  app_->add_flag(name, value, help);
}

bool Command::given(const std::string& name) const {
  return app_->count(name) > 0;
}

}  // namespace tandem::cli
