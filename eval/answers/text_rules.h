// Rules that find a number or a letter by its place in the text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tandem::eval {

using FoundText = std::optional<std::string>;

/// Behind the first "#### " that begins a line, in the form of strict_match(): GSM8K's own solutions end so.
FoundText marked_line(std::string_view text);
/// "#### 1,234": behind the first marker that digits, "." and "," follow, with a sign.
FoundText strict_match(std::string_view text);
/// "The answer is 18." with one character behind the number.
FoundText cot_strict_match(std::string_view text);
/// The last number: two or more of digits, "$", "." and ",", or digits.
FoundText flexible_extract(std::string_view text);

/// exact_match with the options of lm-evaluation-harness' GSM8K tasks: the same text without commas, $, what stands
/// before "#### ", a full stop at the end, and the case of letters.
bool same_number_text(std::string_view a, std::string_view b);

/// "Answer: C", in any case, the first one.
FoundText answer_line(std::string_view text);
/// "answer is (C)", the first one.
FoundText answer_sentence(std::string_view text);
/// The choice in the last \boxed{} that begins with one: \boxed{C}, \boxed{\text{(C) 10 eV}}, \boxed{C - a text}.
FoundText boxed_letter(std::string_view text);

/// The choice from A to D that a short answer is: "C", "(c)", "C. 10 eV", "Option C"; nothing for "A or C".
std::optional<char> choice_of(std::string_view answer);

}  // namespace tandem::eval
