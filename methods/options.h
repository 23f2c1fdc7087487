// A method's options as documented data: name, type, default, meaning, and how a text value is parsed and checked. One
// table per method serves the command line, `tandem methods <name>` and the spelled-out name in every result.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem {

struct OptionInfo {
  std::string name;
  std::string type;  // "tokens", "ratio", "16|32|64|128"
  std::string default_value;
  std::string help;
};

/// "name:key=value,key=value" split into its parts; InputError for a malformed one.
struct MethodSpec {
  std::string name;
  std::vector<std::pair<std::string, std::string>> options;
};
MethodSpec parse_method_spec(std::string_view text);

/// Splits "full,hybrid-fixed:budget=0.05,block=32,streaming" into specs: a comma belongs to the options of the spec
/// before it when what follows is key=value.
std::vector<std::string> split_method_list(std::string_view text);

/// A number of tokens, or a share of some whole.
struct TokenShare {
  double ratio = 0;          // used where tokens is 0
  std::uint32_t tokens = 0;  //
  /// Of a whole of `total` tokens, rounded up.
  std::uint32_t of(std::uint32_t total) const;
};

/// Binds option names to variables; parse() fills them and reports unknown names and bad values as sentences.
class OptionSet {
 public:
  explicit OptionSet(std::string method) : method_(std::move(method)) {}
  void tokens(std::string name, std::uint32_t& value, std::string help);                     // whole number, 4K allowed
  void count(std::string name, std::uint32_t& value, std::string what, std::string help);    // whole number of `what`
  void ratio(std::string name, double& value, double above, double most, std::string help);  // above < value <= most
  void number(std::string name, double& value, double least, double most, std::string help);  // least <= value <= most
  void share(std::string name, TokenShare& value, std::string help);  // up to 1 a ratio, above 1 tokens
  void choice(std::string name, std::string& value, std::vector<std::string> choices, std::string help);
  void number_of(std::string name, std::uint32_t& value, std::vector<std::uint32_t> choices, std::string help);

  /// A value with a form of its own. `set` returns false for text that is not of `type`, or throws a sentence.
  void value(std::string name, std::string type, std::string help, std::function<bool(const std::string&)> set,
             std::function<std::string()> get);

  void parse(const MethodSpec& spec);
  std::vector<OptionInfo> describe() const;
  /// "name:key=value,..." with every option, in order of declaration.
  std::string spelled_out() const;

 private:
  struct Entry {
    OptionInfo info;
    std::function<bool(const std::string&)> set;
    std::function<std::string()> get;
  };
  void add(OptionInfo info, std::function<bool(const std::string&)> set, std::function<std::string()> get);
  std::string method_;
  std::vector<Entry> entries_;
};

}  // namespace tandem
