#include "eval/answers/latex_tokens.h"

#include <algorithm>
#include <array>
#include <unordered_map>

namespace tandem::eval {
namespace {

struct Words {
  std::string_view kind;
  std::string_view words;  // with spaces between
};

/// Of equal words the first counts. SKIP is no token.
constexpr auto kWords = std::to_array<Words>({
    {"TRANSPOSE", "^T ^{T} '"},
    {"DEGREE", "^\\circ ^\\degree ^\\circle ^\u00b0 ^{\\circ} ^{\\degree} ^{\\circle} ^{\u00b0}"},
    {"SKIP",
     "\\, \\thinspace \\: \\medspace \\; \\thickspace \\quad \\qquad \\! \\negthinspace \\negmedspace "
     "\\negthickspace \\$ \\vrule \\vcenter \\vbox \\vskip \\vspace \\hfil"},
    {"ADD", "+ \u2214 \u2295 \u229e"},
    {"SUB", "- \u2212 \u2238"},
    {"MUL",
     "* \u00d7 \u22c5 \u22c4 \u22a1 \u2217 \u22c6 \u2218 \u2219 \u2297 \u22a0 \u22c8 \u22c9 \u22ca \\times \\cdot"},
    {"DIV", "/ \u00f7 \u2215 \\over \\div"},
    {"LP", "("},
    {"RP", ")"},
    {"LPV", "\\("},
    {"RPV", "\\)"},
    {"LGROUP", "\\lgroup"},
    {"RGROUP", "\\rgroup"},
    {"LB", "{"},
    {"RB", "}"},
    {"LBV", "\\{"},
    {"RBV", "\\}"},
    {"LBC", "\\lbrace"},
    {"RBC", "\\rbrace"},
    {"LSQ", "["},
    {"RSQ", "]"},
    {"LBRACK", "\\lbrack"},
    {"RBRACK", "\\rbrack"},
    {"PHANTOM", "\\phantom"},
    {"BOXED", "\\boxed"},
    {"BAR", "|"},
    {"LVERT", "\\lvert"},
    {"RVERT", "\\rvert"},
    {"VERT", "\\vert"},
    {"NORM", "\\|"},
    {"LANGLE", "\\langle"},
    {"RANGLE", "\\rangle"},
    {"LFLOOR", "\\lfloor \\llcorner"},
    {"RFLOOR", "\\rfloor \\lrcorner"},
    {"LCEIL", "\\lceil \\ulcorner"},
    {"RCEIL", "\\rceil \\urcorner"},
    {"LIM", "\\lim"},
    {"TO", "\\to \\rightarrow \\Rightarrow \\longrightarrow \\Longrightarrow"},
    {"INT", "\\int"},
    {"SUM", "\\sum"},
    {"PROD", "\\prod"},
    {"FUNC1",
     "\\log \\ln \\exp \\sin \\cos \\tan \\csc \\sec \\cot \\arcsin \\arccos \\arctan \\arccsc \\arcsec \\arccot "
     "\\sinh "
     "\\cosh \\tanh \\arsinh \\arcosh \\artanh \\arcsinh \\arccosh \\arctanh \\floor \\ceil \\det"},
    {"GAMMA", "\\Gamma \\gamma"},
    {"NAME1",
     "arsinh arcsinh arcosh arccosh artanh arctanh floor ceil eye cols rows norm rank trace tr rref nullspace eig "
     "eigen "
     "diagonalize eigenvals eigenvalues eigenvects eigenvectors svd SVD"},
    {"NAME2", "gcd lcm zeros ones diag hstack vstack orth ortho orthogonal orthogonalize"},
    {"SQRT", "\\sqrt"},
    {"FUNC2", "\\gcd \\lcm \\max \\min"},
    {"MOD", "\\mod"},
    {"FRAC", "\\frac \\dfrac \\tfrac \\cfrac"},
    {"BINOM", "\\binom \\tbinom \\dbinom"},
    {"CHOOSE", "\\choose"},
    {"OPERATOR", "\\operatorname"},
    {"OTHERWORD",
     "\\mathit matrix pmatrix bmatrix vmatrix . \\xrightarrow \\xRightarrow <-> <=> \\leftrightarrow "
     "\\Leftrightarrow"},
    {"MBEGIN", "\\begin{matrix} \\begin{pmatrix} \\begin{bmatrix}"},
    {"MEND", "\\end{matrix} \\end{pmatrix} \\end{bmatrix}"},
    {"AEND", "\\end{array}"},
    {"DBEGIN", "\\begin{vmatrix}"},
    {"DEND", "\\end{vmatrix}"},
    {"COL", "&"},
    {"ROW", "\\\\"},
    {"UNDER", "_"},
    {"CARET", "^"},
    {"COLON", ":"},
    {"SEMI", ";"},
    {"COMMA", ","},
    {"EXP", "e \\exponentialE"},
    {"BIGE", "E"},
    {"IN", "\\in"},
    {"ASSIGN", "= \u2261 \u2263 \u225f \u224e \u224f \u2250 \u2251 \u2252 \u2253 \u2254 \u2255 \u2256 \u2257"},
    {"EQUAL", "== \\equiv"},
    {"APPROX", "~= \u2248 \u224a \u224b \u2243 \u2245 \\approx"},
    {"LT", "< \u226a \u227a \u22d6 \\lt"},
    {"LE", "\\leq \\le \\leqslant \u2264 \u2266 \u2272 \u227e <="},
    {"GT", "> \u226b \u227b \u22d7 \\gt"},
    {"GE", "\\geq \\ge \\geqslant \u2265 \u2267 \u2273 \u227f >="},
    {"NE", "!= !== \\ne \\neq \\not\\equiv \u2260 \u2241 \u2244 \u2247 \u2249 \u2262"},
    {"BANG", "!"},
    {"GREEK",
     "\\alpha \u03b1 \\beta \u03b2 \u03b3 \u0393 \\delta \u03b4 \\Delta \u0394 \\epsilon \u03b5 \\varepsilon \u03f5 "
     "\\zeta \u03b6 \\eta \u03b7 \\theta \u03b8 \\Theta \u0398 \\vartheta \u03d1 \\iota \u03b9 \\kappa \u03ba \\lambda "
     "\u03bb \\Lambda \u039b \\mu \u03bc \\nu \u03bd \\xi \u03be \\Xi \u039e \\omicron \u03bf \\pi \u03c0 \\Pi \u03a0 "
     "\\varpi \u03d6 \\rho \u03c1 \\varrho \u03f1 \\sigma \u03c3 \\Sigma \u03a3 \\varsigma \u03c2 \\tau \u03c4 "
     "\\upsilon \u03c5 \\Upsilon \u03a5 \\phi \u03c6 \\Phi \u03a6 \\varphi \u03d5 \\chi \u03c7 \\psi \u03c8 \\Psi "
     "\u03a8 \\omega \u03c9 \\Omega \u03a9"},
    {"OTHER",
     "\\Bbbk \\wp \\nabla \\bigstar \\angle \\nexists \\diagdown \\measuredangle \\eth \u2135 \u2136 \u2137 \u2138 "
     "\\diagup \\sphericalangle \\clubsuit \\varnothing \\Diamond \\complement \\diamondsuit \\imath \\Finv "
     "\\triangledown \\heartsuit \\jmath \\Game \\triangle \\spadesuit \\ell \\hbar \\vartriangle \\hslash "
     "\\blacklozenge \\lozenge \\blacksquare \\mho \\blacktriangle \\sharp \\prime \\Im \\flat \\square \\backprime "
     "\\Re \\natural \\surd \\circledS"},
    {"INFTY", "\\infty \\infty% \\infty\\%"},
    {"PARTIAL", "\\partial"},
    {"NAT", "\\mathbb{N} \u2115"},
    {"INTEGERS", "\\mathbb{Z} \u2124"},
    {"RATIONALS", "\\mathbb{Q} \u211a"},
    {"REALS", "\\mathbb{R} \u211d"},
    {"COMPLEXES", "\\mathbb{C} \u2102"},
    {"PRIMES", "\\mathbb{P} \u2119"},
    {"UNION", "\\cup \u222a"},
    {"CAP", "\\cap \u2229"},
    {"MINUS", "\\setminus \u2216"},
    {"PM", "\\pm \u00b1 \u2213 \\mp"},
    {"EMPTY", "\\emptyset \u2205 \\{\\} \\lbrace\\rbrace"},
    {"SUPSET", "\\supseteq \u2287"},
    {"SUBSET", "\\subseteq \u2286"},
    {"NOTIN", "\\notin \u2209"},
});

/// Kinds whose words are patterns; the first three come before all words of equal length but the ones above.
constexpr auto kPatterns =
    std::to_array<std::string_view>({"ABEGIN", "DIFF", "LETTER", "NUMBER", "ENOT", "PERCENT", "ACCENT"});

constexpr auto kAccents = std::to_array<std::string_view>(
    {"acute",     "bar",        "overline",   "breve",    "check",     "widecheck",    "dot",
     "ddot",      "grave",      "hat",        "tilde",    "widetilde", "vec",          "overrightarrow",
     "bm",        "boldsymbol", "text",       "textit",   "textbf",    "textnormal",   "mathbb",
     "mathbin",   "mathbf",     "mathcal",    "mathclap", "mathclose", "mathellipsis", "mathfrak",
     "mathinner", "mathit",     "mathnormal", "mathop",   "mathopen",  "mathord",      "mathpunct",
     "mathrel",   "mathring",   "mathrlap",   "mathrm",   "mathscr",   "mathsf",       "mathsterling",
     "mathtt",    "mbox"});

struct Table {
  std::vector<std::string_view> kinds;
  std::unordered_map<std::string_view, std::uint8_t> words;
  std::size_t longest = 0;

  Table() {
    for (const Words& entry : kWords) {
      const auto kind = static_cast<std::uint8_t>(kinds.size());
      kinds.push_back(entry.kind);
      for (std::size_t at = 0; at < entry.words.size();) {
        const std::size_t end = std::min(entry.words.find(' ', at), entry.words.size());
        words.try_emplace(entry.words.substr(at, end - at), kind);
        longest = std::max(longest, end - at);
        at = end + 1;
      }
    }
    kinds.insert(kinds.end(), kPatterns.begin(), kPatterns.end());
  }

  std::uint8_t kind(std::string_view name) const {
    return static_cast<std::uint8_t>(std::find(kinds.begin(), kinds.end(), name) - kinds.begin());
  }
};

const Table& table() {
  static const Table built;
  return built;
}

bool is_digit_byte(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_space_byte(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

template <typename Is>
std::size_t run(std::string_view text, std::size_t at, Is is) {
  while (at < text.size() && is(text[at])) ++at;
  return at;
}

std::size_t number_length(std::string_view text) {
  const std::size_t whole = run(text, 0, is_digit_byte);
  if (whole < text.size() && text[whole] == '.') {
    const std::size_t end = run(text, whole + 1, is_digit_byte);
    if (end > whole + 1) return end;
  }
  return whole;
}

/// 12E-3, of the number's length.
std::size_t scientific_length(std::string_view text, std::size_t number) {
  if (number == 0 || number >= text.size() || text[number] != 'E') return 0;
  std::size_t at = number + 1;
  for (const std::string_view sign : {"+", "-", "\u2212"}) {
    if (text.substr(at).starts_with(sign)) {
      at += sign.size();
      break;
    }
  }
  const std::size_t end = run(text, at, is_digit_byte);
  return end > at ? end : 0;
}

std::size_t percent_length(std::string_view text, std::size_t number) {
  if (number == 0) return 0;
  const std::size_t at = number < text.size() && is_space_byte(text[number]) ? number + 1 : number;
  if (text.substr(at).starts_with("\\%")) return at + 2;
  return text.substr(at).starts_with("%") ? at + 1 : 0;
}

/// d and the variable behind it: dx, d \alpha.
std::size_t differential_length(std::string_view text) {
  if (text[0] != 'd') return 0;
  const std::size_t at = run(text, 1, is_space_byte);
  if (at == text.size()) return 0;
  if (is_letter_byte(text[at])) return at + 1;
  const std::size_t end = text[at] == '\\' ? run(text, at + 1, is_letter_byte) : at;
  return end > at + 1 ? end : 0;
}

std::size_t accent_length(std::string_view text) {
  if (text[0] != '\\') return 0;
  std::size_t at = run(text, 1, is_letter_byte);
  const std::string_view name = text.substr(1, at - 1);
  if (std::find(kAccents.begin(), kAccents.end(), name) == kAccents.end()) return 0;
  if (at < text.size() && is_space_byte(text[at])) ++at;
  if (at == text.size() || text[at] != '{') return 0;
  for (++at; at < text.size(); ++at) {
    if (text[at] == '}') return at + 1;
    if (text[at] == '\\' && at + 1 < text.size() && text[at + 1] == '}') ++at;
  }
  return 0;
}

std::size_t array_length(std::string_view text) {
  constexpr std::string_view kBegin = "\\begin{array}{";
  if (!text.starts_with(kBegin)) return 0;
  const std::size_t end = run(text, kBegin.size(), [](char c) { return c == 'c' || c == 'l' || c == 'r'; });
  return end < text.size() && text[end] == '}' ? end + 1 : 0;
}

struct Longest {
  std::size_t length = 0;
  std::string_view kind;
  void offer(std::size_t other, std::string_view name) {
    if (other > length) *this = {other, name};
  }
};

}  // namespace

const std::vector<std::string_view>& latex_token_kinds() {
  return table().kinds;
}

std::optional<std::vector<LatexToken>> latex_tokens(std::string_view text) {
  const Table& known = table();
  std::vector<LatexToken> tokens;
  while (!text.empty()) {
    if (is_space_byte(text[0])) {
      text.remove_prefix(1);
      continue;
    }
    Longest best;
    for (std::size_t length = std::min(known.longest, text.size()); length > 0; --length) {
      const auto word = known.words.find(text.substr(0, length));
      if (word == known.words.end()) continue;
      best = {length, known.kinds[word->second]};
      // A blank behind a Greek letter is a part of it, which makes "\gamma " longer than the function \gamma.
      const bool is_greek = best.kind == "GREEK" || best.kind == "GAMMA" || best.kind == "OTHER";
      if (is_greek && length < text.size() && text[length] == ' ')
        best = {length + 1, best.kind == "OTHER" ? "OTHER" : "GREEK"};
      break;
    }
    best.offer(array_length(text), "ABEGIN");
    best.offer(differential_length(text), "DIFF");
    if (is_letter_byte(text[0])) best.offer(1, "LETTER");
    const std::size_t number = number_length(text);
    best.offer(number, "NUMBER");
    best.offer(scientific_length(text, number), "ENOT");
    best.offer(percent_length(text, number), "PERCENT");
    best.offer(accent_length(text), "ACCENT");
    if (best.length == 0) return std::nullopt;
    if (best.kind != "SKIP") tokens.push_back({known.kind(best.kind), std::string(text.substr(0, best.length))});
    text.remove_prefix(best.length);
  }
  return tokens;
}

}  // namespace tandem::eval
