#include "eval/answers/latex_grammar.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <unordered_map>

#include "engine/common/error.h"

namespace tandem::eval {
namespace {

struct Rule {
  std::string_view name;
  std::string_view text;  // words in capitals are tokens; ? * + and | as in regular expressions
};

constexpr auto kGrammar = std::to_array<Rule>({
    {"answer", "assigned | elements | claim"},
    {"assigned", "names ( IN | ASSIGN ) values"},
    {"values", "value_row ( SEMI value_row )*"},
    {"value_row", "value ( COMMA value )*"},
    {"value", "plus_minus | set_atom | expr"},
    {"elements", "row ( SEMI row )*"},
    {"row", "item ( COMMA item )*"},
    {"item", "plus_minus | set_atom | relation"},
    {"plus_minus", "expr PM expr | PM expr"},
    {"relation", "expr ( related expr )*"},
    {"related", "IN | ASSIGN | EQUAL | APPROX | LT | LE | GT | GE | NE"},
    {"expr", "product ( ( ADD | SUB ) product )*"},
    {"product", "signed ( ( MUL | DIV | COLON | MOD ) signed )*"},
    {"signed", "( ADD | SUB ) signed | postfix+"},
    {"argument", "signed_argument ( ( MUL | DIV | COLON | MOD ) signed_argument )*"},
    {"signed_argument", "( ADD | SUB ) signed_argument | postfix plain_postfix*"},
    {"postfix", "powers mark*"},
    {"plain_postfix", "plain_powers mark*"},
    {"mark", "BANG | TRANSPOSE | DEGREE"},
    {"powers", "base raised*"},
    {"plain_powers", "plain_base raised*"},
    {"raised", "CARET ( atom | LB expr RB ) sub?"},
    {"base", "group | boxed | norm | absolute | dot | floor | ceiling | func | atom | frac | binom | matrix | det"},
    {"plain_base", "group | boxed | norm | absolute | dot | floor | ceiling | atom | frac | binom | matrix | det"},
    {"group",
     "LP expr RP | LGROUP expr RGROUP | LB expr RB | LSQ expr RSQ | LBV expr RBV | LBC expr RBC | LBRACK expr RBRACK"},
    {"boxed", "PHANTOM LB expr RB | BOXED LB expr RB"},
    {"norm", "NORM expr NORM"},
    {"absolute", "BAR expr BAR | LVERT expr RVERT | VERT expr VERT"},
    {"dot", "LANGLE expr RANGLE"},
    {"floor", "LFLOOR expr RFLOOR"},
    {"ceiling", "LCEIL expr RCEIL"},
    {"atom", "symbol | INFTY | PARTIAL | numeral | PERCENT | ENOT | BIGE | DIFF | GAMMA"},
    {"name", "LETTER | GREEK | OTHER | ACCENT"},
    {"symbol", "name ( sup sub | sub sup | sub | sup )?"},
    {"names", "LP symbol ( COMMA symbol )* RP | symbol"},
    {"numeral", "NUMBER sub?"},
    {"frac", "FRAC LB expr RB LB expr RB"},
    {"binom", "LB expr CHOOSE expr RB | BINOM LB expr RB LB expr RB"},
    {"func", "unary_call | list_call | named_call | integral | root | series | limit | exponential"},
    {"unary_call", "unary ( sub? sup? | sup? sub? ) ( LP expr RP | argument )"},
    {"unary", "FUNC1 | GAMMA | OPERATOR LB NAME1 RB"},
    {"list_call", "listed ( sub? sup? | sup? sub? ) ( LP list RP | argument )"},
    {"listed", "FUNC2 | OPERATOR LB NAME2 RB"},
    {"named_call", "callee sup? ( LP given RP | LSQ given RSQ | LB LP given RP RB | LB LSQ given RSQ RB )"},
    {"callee", "name sub?"},
    {"integral",
     "INT ( sub sup | sup sub | UNDER LB RB CARET LB RB | CARET LB RB UNDER LB RB )? ( expr? DIFF | frac | expr )"},
    {"root", "SQRT ( LSQ expr RSQ )? LB expr RB"},
    {"series", "( SUM | PROD ) ( from sup | sup from ) product"},
    {"from", "UNDER LB expr ( EQUAL | ASSIGN ) expr RB"},
    {"limit", "LIM UNDER LB ( LETTER | GREEK | OTHER ) TO expr ( CARET LB ( ADD | SUB ) RB )? RB product"},
    {"exponential", "EXP sup?"},
    {"arguments", "expr COMMA arguments | expr"},
    {"given", "atom | expr COMMA | expr COMMA arguments"},
    {"list", "expr | expr COMMA list"},
    {"sub", "UNDER ( atom | LB ( expr | arguments ) RB )"},
    {"sup", "CARET ( atom | LB expr RB )"},
    {"matrix", "MBEGIN line ( ROW line )* ROW? MEND | ABEGIN line ( ROW line )* ROW? AEND"},
    {"det", "DBEGIN line ( ROW line )* ROW? DEND"},
    {"line", "expr ( COL expr )*"},
    {"claim", "claimed ( ( SUBSET | SUPSET ) claimed )*"},
    {"claimed", "names ( IN | NOTIN | ASSIGN ) claim | set_minus"},
    {"set_minus", "set_union ( MINUS set_union )*"},
    {"set_union", "set_cap ( UNION set_cap )*"},
    {"set_cap", "set_group ( CAP set_group )*"},
    {"set_group", "LP set_minus RP | set_atom"},
    {"set_atom", "interval | named_set | tuple | braced"},
    {"interval", "( LSQ | LP | LPV | LBRACK | LGROUP ) expr COMMA expr ( RSQ | RP | RPV | RBRACK | RGROUP )"},
    {"named_set", "NAT | INTEGERS | RATIONALS | REALS | COMPLEXES | PRIMES | EMPTY | LB RB"},
    {"tuple", "LP elements RP | LPV elements RPV | LSQ elements RSQ"},
    {"braced", "LB elements RB | LBV elements RBV | BOXED LB elements RB"},
});

enum class Part : std::uint8_t { token, rule, sequence, choice, repeat };

struct Element {
  Part part = Part::token;
  std::size_t index = 0;              // of the token's kind or the rule
  std::vector<std::size_t> elements;  // of a sequence, a choice, or what is repeated (one)
};

/// kGrammar as elements; a rule's element is rules[its number].
class Grammar {
 public:
  std::vector<Element> elements;
  std::vector<std::size_t> rules;

  Grammar() {
    for (const Rule& rule : kGrammar) {
      rest_ = rule.text;
      next();
      rules.push_back(choice());
    }
  }

 private:
  void next() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size()));
    std::size_t end = std::min(rest_.find(' '), rest_.size());
    if (end > 1 && std::string_view("?*+").find(rest_[end - 1]) != std::string_view::npos) --end;
    if (end == 0 && !rest_.empty()) end = 1;
    word_ = rest_.substr(0, end);
    rest_.remove_prefix(end);
  }

  std::size_t add(Part part, std::size_t index, std::vector<std::size_t> parts) {
    elements.push_back({part, index, std::move(parts)});
    return elements.size() - 1;
  }

  std::size_t choice() {
    std::vector<std::size_t> all{sequence()};
    while (word_ == "|") {
      next();
      all.push_back(sequence());
    }
    return all.size() == 1 ? all[0] : add(Part::choice, 0, std::move(all));
  }

  std::size_t sequence() {
    std::vector<std::size_t> all;
    while (!word_.empty() && word_ != "|" && word_ != ")") {
      const std::size_t one = single();
      if (word_ == "?" || word_ == "*" || word_ == "+") {
        if (word_ == "+") all.push_back(one);
        const std::size_t none = add(Part::sequence, 0, {});
        all.push_back(word_ == "?" ? add(Part::choice, 0, {one, none}) : add(Part::repeat, 0, {one}));
        next();
      } else {
        all.push_back(one);
      }
    }
    return all.size() == 1 ? all[0] : add(Part::sequence, 0, std::move(all));
  }

  std::size_t single() {
    const std::string_view word = word_;
    next();
    if (word == "(") {
      const std::size_t inner = choice();
      next();  // the parenthesis
      return inner;
    }
    if (std::isupper(static_cast<unsigned char>(word[0])) != 0) {
      const auto& kinds = latex_token_kinds();
      const auto kind = std::find(kinds.begin(), kinds.end(), word);
      TANDEM_CHECK(kind != kinds.end(), "no token '{}'", word);
      return add(Part::token, static_cast<std::size_t>(kind - kinds.begin()), {});
    }
    const auto rule = std::find_if(kGrammar.begin(), kGrammar.end(), [&](const Rule& r) { return r.name == word; });
    TANDEM_CHECK(rule != kGrammar.end(), "no rule '{}'", word);
    return add(Part::rule, static_cast<std::size_t>(rule - kGrammar.begin()), {});
  }

  std::string_view rest_, word_;
};

const Grammar& grammar() {
  static const Grammar built;
  return built;
}

struct TooMuch {};

using Places = std::vector<std::size_t>;  // sorted

/// Where each rule can end is found once for each place, so that the whole costs a polynomial of the tokens. Then the
/// tree is built from left to right, every choice looking ahead with these ends.
class LatexParser {
 public:
  explicit LatexParser(const std::vector<LatexToken>& tokens) : tokens_(tokens) {}

  std::unique_ptr<LatexNode> parse() {
    const Element answer{Part::rule, 0, {}};
    const Places& ends = remembered(grammar().elements[grammar().rules[0]], 0);
    if (!std::binary_search(ends.begin(), ends.end(), tokens_.size())) return nullptr;
    LatexNode top;
    build(answer, 0, {tokens_.size()}, top);
    return std::move(top.children.front());
  }

 private:
  void count(std::size_t steps) {
    constexpr std::size_t kMostSteps = 4000000;
    steps_ += steps;
    if (steps_ > kMostSteps) throw TooMuch();
  }

  /// Ends of a rule's body or a repetition.
  const Places& remembered(const Element& element, std::size_t at) {
    constexpr std::size_t kMostDepth = 700;  // rules in rules: some ten for each group in a group
    const auto index = static_cast<std::size_t>(&element - grammar().elements.data());
    const std::size_t key = index * (tokens_.size() + 1) + at;
    if (const auto known = ends_.find(key); known != ends_.end()) return known->second;
    if (++depth_ > kMostDepth) throw TooMuch();
    Places ends = element.part == Part::repeat ? ends_of_repeat(element, at) : ends_of(element, at);
    --depth_;
    return ends_.emplace(key, std::move(ends)).first->second;
  }

  Places ends_of_repeat(const Element& element, std::size_t at) {
    Places out{at}, fresh{at};
    while (!fresh.empty()) {
      Places next = ends_from(grammar().elements[element.elements[0]], fresh), unseen;
      std::set_difference(next.begin(), next.end(), out.begin(), out.end(), std::back_inserter(unseen));
      unite(out, unseen);
      fresh = std::move(unseen);
    }
    return out;
  }

  static void unite(Places& into, const Places& more) {
    const auto middle = static_cast<std::ptrdiff_t>(into.size());
    into.insert(into.end(), more.begin(), more.end());
    std::inplace_merge(into.begin(), into.begin() + middle, into.end());
    into.erase(std::unique(into.begin(), into.end()), into.end());
  }

  Places ends_from(const Element& element, const Places& places) {
    Places out;
    for (const std::size_t place : places) unite(out, ends_of(element, place));
    return out;
  }

  Places ends_of(const Element& element, std::size_t at) {
    count(1);
    const auto& all = grammar().elements;
    switch (element.part) {
      case Part::token:
        return at < tokens_.size() && tokens_[at].kind == element.index ? Places{at + 1} : Places{};
      case Part::rule:
      case Part::repeat: {
        const Places& ends = remembered(element.part == Part::rule ? all[grammar().rules[element.index]] : element, at);
        count(ends.size());
        return ends;
      }
      case Part::choice: {
        Places out;
        for (const std::size_t one : element.elements) unite(out, ends_of(all[one], at));
        return out;
      }
      case Part::sequence: {
        Places places{at};
        for (const std::size_t one : element.elements) {
          if (places.empty()) break;
          places = ends_from(all[one], places);
        }
        return places;
      }
    }
    return {};
  }

  static bool meet(const Places& a, const Places& b) {
    return std::any_of(a.begin(), a.end(), [&](std::size_t p) { return std::binary_search(b.begin(), b.end(), p); });
  }

  /// Those of `places` from which elements of the sequence from `first` on can end in `allowed`.
  Places that_reach(const Element& sequence, std::size_t first, const Places& places, const Places& allowed) {
    Places out;
    for (const std::size_t place : places) {
      Places ends{place};
      for (std::size_t i = first; i < sequence.elements.size() && !ends.empty(); ++i)
        ends = ends_from(grammar().elements[sequence.elements[i]], ends);
      if (meet(ends, allowed)) out.push_back(place);
    }
    return out;
  }

  /// Adds what `element` is to `into`; it can end in one of `allowed`. Returns where it ends.
  std::size_t build(const Element& element, std::size_t at, const Places& allowed, LatexNode& into) {
    const auto& all = grammar().elements;
    switch (element.part) {
      case Part::token: {
        LatexNode& node = *into.children.emplace_back(std::make_unique<LatexNode>());
        node.rule = latex_token_kinds()[element.index];
        node.word = tokens_[at].text;
        return at + 1;
      }
      case Part::rule: {
        LatexNode& node = *into.children.emplace_back(std::make_unique<LatexNode>());
        node.rule = kGrammar.at(element.index).name;
        return build(all[grammar().rules[element.index]], at, allowed, node);
      }
      case Part::choice: {
        for (const std::size_t one : element.elements)
          if (meet(ends_of(all[one], at), allowed)) return build(all[one], at, allowed, into);
        throw TooMuch();  // not reached: `element` can end in `allowed`
      }
      case Part::sequence: {
        for (std::size_t i = 0; i < element.elements.size(); ++i) {
          const Element& one = all[element.elements[i]];
          at = build(one, at, that_reach(element, i + 1, ends_of(one, at), allowed), into);
        }
        return at;
      }
      case Part::repeat: {
        const Element& one = all[element.elements[0]];
        for (;;) {
          Places going_on;
          for (const std::size_t end : ends_of(one, at))
            if (end > at && meet(ends_of(element, end), allowed)) going_on.push_back(end);
          if (going_on.empty()) return at;
          at = build(one, at, going_on, into);
        }
      }
    }
    return at;
  }

  const std::vector<LatexToken>& tokens_;
  std::unordered_map<std::size_t, Places> ends_;
  std::size_t steps_ = 0, depth_ = 0;
};

}  // namespace

const LatexNode* LatexNode::child(std::string_view name, std::size_t n) const {
  for (const auto& one : children)
    if (one->rule == name && n-- == 0) return one.get();
  return nullptr;
}

std::vector<const LatexNode*> LatexNode::all(std::string_view name) const {
  std::vector<const LatexNode*> out;
  for (const auto& one : children)
    if (one->rule == name) out.push_back(one.get());
  return out;
}

std::string LatexNode::text() const {
  std::string out = word;
  for (const auto& one : children) out += one->text();
  return out;
}

std::unique_ptr<LatexNode> parse_latex(const std::vector<LatexToken>& tokens) {
  constexpr std::size_t kMostTokens = 1000;
  if (tokens.empty() || tokens.size() > kMostTokens) return nullptr;
  try {
    return LatexParser(tokens).parse();
  } catch (const TooMuch&) {
    return nullptr;
  }
}

}  // namespace tandem::eval
