#include <algorithm>
#include <cctype>

#include "engine/common/error.h"
#include "engine/model/word_splitter.h"

namespace tandem {
namespace {

constexpr std::string_view kSpaces = R"(\t-\r \x{85}\p{Z})";

constexpr std::string_view kCategories[] = {
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe",
    "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Cs", "Co", "Cn"};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class Translation {
 public:
  Translation(const std::string& expression, const std::string& file) : whole_(expression), file_(file) {}

  std::string run() {
    while (!rest().empty()) read_part();
    return std::move(out_);
  }

 private:
  std::string_view rest() const { return std::string_view(whole_).substr(at_); }
  char next(std::size_t ahead = 0) const { return at_ + ahead < whole_.size() ? whole_[at_ + ahead] : '\0'; }

  [[noreturn]] void refuse(std::string_view part, std::string_view why) const {
    throw_input_error("{}: the expression '{}' has '{}' ({}), which is not supported.", file_, whole_, part, why);
  }

  void copy(std::size_t bytes) {
    out_.append(whole_, at_, bytes);
    at_ += bytes;
  }

  bool ignores_case() const { return !groups_.empty() && groups_.back(); }

  void read_part() {
    const char c = next();
    if (c == '[') {
      read_class();
    } else if (c == '\\') {
      read_escape(/*in_class=*/false);
    } else if (c == '(') {
      read_group();
    } else if (c == ')') {
      if (!groups_.empty()) groups_.pop_back();
      copy(1);
    } else if (c == '^' || c == '$') {
      refuse(std::string(1, c), "an anchor");
    } else if (c == '{') {
      read_interval();
    } else {  // what stands for itself, and the operators | . * + ?
      if (ignores_case()) check_without_case(rest());
      copy(1);
    }
  }

  void read_group() {
    std::string_view opening = "(";
    if (rest().starts_with("(*")) refuse("(*", "a verb");
    if (rest().starts_with("(?")) {
      static constexpr std::string_view kOpenings[] = {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!"};
      const auto* const known = std::find_if(std::begin(kOpenings), std::end(kOpenings),
                                             [this](std::string_view o) { return rest().starts_with(o); });
      if (known == std::end(kOpenings))
        refuse(rest().substr(0, 3), "a group other than (?: (?i: (?= (?! (?<= and (?<!");
      opening = *known;
    }
    groups_.push_back(opening == "(?i:" || ignores_case());
    copy(opening.size());
  }

  /// {n}, {n,}, {n,m} and the lazy {n,}? and {n,m}?. Oniguruma repeats a {..}+ again, where PCRE2 takes the + for
  /// "possessive", and makes {n}? optional.
  void read_interval() {
    std::size_t end = 1;
    while (is_digit(next(end))) ++end;
    const bool from = end > 1, comma = next(end) == ',';
    if (comma) ++end;
    while (comma && is_digit(next(end))) ++end;
    if (next(end) != '}') refuse("{", "no repetition; the character itself is \\{");
    const std::string_view interval = rest().substr(0, end + 1);
    if (!from) refuse(interval, "a repetition without a smallest number");
    const char behind = next(end + 1);
    if (behind == '+' || (behind == '?' && !comma))
      refuse(rest().substr(0, end + 2), "a repetition that libraries read differently");
    copy(interval.size());
  }

  /// Oniguruma folds case by whole strings: "ss" is also U+00DF.
  void check_without_case(std::string_view text) const {
    if (static_cast<unsigned char>(text[0]) >= 0x80) refuse("(?i:", "around a character outside ASCII");
    const auto lower = [](char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); };
    const std::string pair = {lower(text[0]), text.size() > 1 ? lower(text[1]) : '\0'};
    for (const std::string_view folded : {"ss", "st", "ff", "fi", "fl"})
      if (pair == folded) refuse("(?i:", fmt::format("around \"{}\", which one character can stand for", folded));
  }

  /// Returns whether the escape stands for many characters.
  bool read_escape(bool in_class) {
    const char escaped = next(1);
    if (escaped == 's' || escaped == 'S') {
      if (in_class && escaped == 'S') refuse("\\S", "in a class");
      if (in_class) {
        out_ += kSpaces;
      } else {
        out_ += fmt::format("[{}{}]", escaped == 'S' ? "^" : "", kSpaces);
      }
      at_ += 2;
      return true;
    }
    if (escaped == 'p' || escaped == 'P') {
      read_property();
      return true;
    }
    if (escaped == 'x' && next(2) == '{') {
      const std::size_t end = rest().find('}');
      if (end == std::string_view::npos) refuse("\\x{", "without its end");
      if (ignores_case()) refuse("(?i:", "around \\x{..}");
      copy(end + 1);
      return false;
    }
    const bool itself = std::ispunct(static_cast<unsigned char>(escaped)) != 0 || escaped == ' ';
    if (!itself && (escaped == '\0' || std::string_view("rntd").find(escaped) == std::string_view::npos))
      refuse(rest().substr(0, 2), "an escape other than \\s \\S \\d \\p{..} \\P{..} \\r \\n \\t \\x{..} and of a mark");
    copy(2);
    return escaped == 'd';
  }

  /// General categories only: PCRE2 takes a script's name with its extensions.
  void read_property() {
    const std::size_t end = rest().find('}');
    const std::string_view name =
        next(2) == '{' && end != std::string_view::npos ? rest().substr(3, end - 3) : std::string_view();
    const std::string_view part = name.empty() ? rest().substr(0, 2) : rest().substr(0, end + 1);
    if (std::ranges::find(kCategories, name) == std::end(kCategories))
      refuse(part, "no general category such as \\p{L} or \\p{Lu}");
    if (ignores_case() && (name == "Lu" || name == "Ll" || name == "Lt")) refuse(part, "in (?i:");
    copy(part.size());
  }

  void read_class() {
    copy(next(1) == '^' ? 2 : 1);
    if (next() == ']') refuse("[]", "a class that begins with its end");
    bool first = true, many = false;  // many: what came last is no end of a range
    while (!rest().empty() && next() != ']') {
      const char c = next();
      if (c == '[') refuse("[", "in a class; the character itself is \\[");
      if (rest().starts_with("&&")) refuse("&&", "in a class");
      const bool range = c == '-' && !first && next(1) != ']' && next(1) != '\0';
      if (range && many) refuse(rest().substr(0, 2), "in a class, behind an escape for many characters");
      if (c == '\\') {
        many = read_escape(/*in_class=*/true);
      } else {
        if (ignores_case() && static_cast<unsigned char>(c) >= 0x80) check_without_case(rest());
        copy(1);
        many = false;
      }
      if (range && next() == '\\')
        if (read_escape(/*in_class=*/true)) refuse("-", "in a class, before an escape for many characters");
      first = false;
    }
    if (!rest().empty()) copy(1);
  }

  const std::string& whole_;
  const std::string& file_;
  std::size_t at_ = 0;
  std::string out_;
  std::vector<bool> groups_;  // of each open one: whether case counts for nothing
};

}  // namespace

std::string pcre2_expression(const std::string& expression, const std::string& file) {
  return Translation(expression, file).run();
}

}  // namespace tandem
