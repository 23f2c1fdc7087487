#include "eval/answers/latex_tokens.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "eval/answers/pattern.h"
#include "eval/scoring/python_text.h"

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
     "\\alpha \u03b1 \\beta \u03b2 \\gamma \u03b3 \\Gamma \u0393 \\delta \u03b4 \\Delta \u0394 \\epsilon \u03b5 "
     "\\varepsilon \u03f5 "
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

struct Shape {
  std::string_view kind, expression;
};

/// Kinds of any number of words. The first that fits is the longest.
constexpr auto kShapes = std::to_array<Shape>({
    {"ABEGIN", R"(\\begin\{array\}\{[clr]*\})"},
    {"DIFF", R"(d[ \t\r\n]*(?:[a-zA-Z]|\\[a-zA-Z]+))"},
    {"LETTER", "[a-zA-Z]"},
    {"ENOT", R"((?:\d*\.)?\d+E(?:[+-]|\xe2\x88\x92)?\d+)"},
    {"PERCENT", R"((?:\d*\.)?\d+[ \t\r\n]?\\?%)"},
    {"NUMBER", R"((?:\d*\.)?\d+)"},
    {"ACCENT",
     R"(\\(?:acute|bar|overline|breve|check|widecheck|dot|ddot|grave|hat|tilde|widetilde|vec|overrightarrow|bm|)"
     R"(boldsymbol|text|textit|textbf|textnormal|mbox|mathbb|mathbin|mathbf|mathcal|mathclap|mathclose|mathellipsis|)"
     R"(mathfrak|mathinner|mathit|mathnormal|mathop|mathopen|mathord|mathpunct|mathrel|mathring|mathrlap|mathrm|)"
     R"(mathscr|mathsf|mathsterling|mathtt)[ \t\r\n]?\{(?:\\\}|[^}])*+\})"},
});

struct Table {
  std::vector<std::string_view> kinds;
  std::unordered_map<std::string_view, std::uint8_t> words;
  std::unordered_map<std::string_view, std::string_view> greek_commands;  // of letters
  std::size_t longest = 0;

  Table() {
    for (const Words& entry : kWords) {
      const auto kind = static_cast<std::uint8_t>(kinds.size());
      kinds.push_back(entry.kind);
      std::string_view before;
      for (const std::string_view word : split_words(entry.words)) {
        words.try_emplace(word, kind);
        longest = std::max(longest, word.size());
        if (entry.kind == "GREEK" && word[0] != '\\') greek_commands[word] = before;
        before = word;
      }
    }
    for (const Shape& entry : kShapes) kinds.push_back(entry.kind);
  }

  std::uint8_t kind(std::string_view name) const {
    return static_cast<std::uint8_t>(std::find(kinds.begin(), kinds.end(), name) - kinds.begin());
  }
};

const Table& table() {
  static const Table built;
  return built;
}

}  // namespace

const std::vector<std::string_view>& latex_token_kinds() {
  return table().kinds;
}

std::string_view greek_command(std::string_view letter) {
  const auto found = table().greek_commands.find(letter);
  return found == table().greek_commands.end() ? std::string_view() : found->second;
}

std::optional<std::vector<LatexToken>> latex_tokens(std::string_view text) {
  const Table& known = table();
  static const Pattern shapes("\\A(?:" + alternatives(kShapes, &Shape::expression) + ")", Pattern::Of::bytes);
  std::vector<LatexToken> tokens;
  while (!text.empty()) {
    if (std::string_view(" \t\r\n").find(text[0]) != text.npos) {
      text.remove_prefix(1);
      continue;
    }
    std::size_t length = std::min(known.longest, text.size());
    while (length > 0 && !known.words.contains(text.substr(0, length))) --length;
    std::string_view kind = length > 0 ? known.kinds[known.words.at(text.substr(0, length))] : "";
    // A blank behind a Greek letter is a part of it, which makes "\gamma " longer than the function \gamma.
    const bool is_greek = kind == "GREEK" || kind == "GAMMA" || kind == "OTHER";
    if (is_greek && length < text.size() && text[length] == ' ') {
      ++length;
      if (kind == "GAMMA") kind = "GREEK";
    }
    const Pattern::Parts match = shapes.first(text);
    if (!match.empty() && match[0].size() > length) {
      length = match[0].size();
      kind = kShapes.at(group_of(match) - 1).kind;
    }
    if (length == 0) return std::nullopt;
    if (kind != "SKIP") tokens.push_back({known.kind(kind), std::string(text.substr(0, length))});
    text.remove_prefix(length);
  }
  return tokens;
}

}  // namespace tandem::eval
