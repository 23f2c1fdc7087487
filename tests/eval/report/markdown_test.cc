// Each expected text was rendered by cmark-gfm, to the text that went in.
#include "eval/report/markdown.h"

#include <gtest/gtest.h>

namespace tandem::eval {
namespace {

TEST(Markdown, NamesAndFiguresStayAsTheyAre) {
  for (const char* text :
       {"hybrid:budget=0.2", "niah_single_1", "100.0 [79.6, 100.0]", "accuracy, % [95\u00a0%]", "<0.001", "a & b",
        "C:\\runs", "1.5", "-19.2 [-27.0, -11.2]", "p < q", "e.g. www", "fluxion#3", "10: ten"})
    EXPECT_EQ(markdown_text(text), text);
}

TEST(Markdown, TextMakesNoSyntax) {
  EXPECT_EQ(markdown_text("a|b"), "a\\|b");
  EXPECT_EQ(markdown_text("[x](http://evil)"), "[x\\](http\\://evil)");
  EXPECT_EQ(markdown_text("![x](javascript:1)"), "![x\\](javascript:1)");
  EXPECT_EQ(markdown_text("2.0 [0.5, 3.8]: yes"), "2.0 [0.5, 3.8]: yes");
  EXPECT_EQ(markdown_text("[a][b]"), "[a\\][b]");
  EXPECT_EQ(markdown_text("[^1]: note"), "\\[^1]: note");
  EXPECT_EQ(markdown_text("<script>x</script><!--"), "\\<script>x\\</script>\\<!--");
  EXPECT_EQ(markdown_text("&lt;&#60;"), "\\&lt;\\&#60;");
  EXPECT_EQ(markdown_text("*a* _b_ ~~c~~ `d` $e$"), "\\*a\\* \\_b\\_ \\~\\~c\\~\\~ \\`d\\` \\$e\\$");
  EXPECT_EQ(markdown_text("\\[x](y)"), "\\\\[x\\](y)");
  EXPECT_EQ(markdown_text("see www.evil.example"), "see www\\.evil.example");
  EXPECT_EQ(markdown_text("a\n# b\r\x1b"), "a\\u000a# b\\u000d\\u001b");
}

TEST(Markdown, AParagraphBeginsNoBlock) {
  EXPECT_EQ(markdown_paragraph("# head"), "\\# head");
  EXPECT_EQ(markdown_paragraph("#3 is no head"), "#3 is no head");
  EXPECT_EQ(markdown_paragraph("> quote"), "\\> quote");
  EXPECT_EQ(markdown_paragraph("- item"), "\\- item");
  EXPECT_EQ(markdown_paragraph("+ item"), "\\+ item");
  EXPECT_EQ(markdown_paragraph("* item"), "\\* item");
  EXPECT_EQ(markdown_paragraph("12. item"), "12\\. item");
  EXPECT_EQ(markdown_paragraph("3) item"), "3\\) item");
  EXPECT_EQ(markdown_paragraph("---"), "\\---");
  EXPECT_EQ(markdown_paragraph("[95 %]: http://evil"), "\\[95 %]: http\\://evil");
  EXPECT_EQ(markdown_paragraph("[^1]: note"), "\\[^1]: note");
  EXPECT_EQ(markdown_paragraph("==="), "\\===");
  EXPECT_EQ(markdown_paragraph("    code"), "code");
  EXPECT_EQ(markdown_paragraph("-: none of it"), "-: none of it");
  EXPECT_EQ(markdown_paragraph("1.5 points"), "1.5 points");
}

TEST(Markdown, CodeHasAsManyBackticksAsItNeeds) {
  EXPECT_EQ(markdown_code("tandem compare"), "`tandem compare`");
  EXPECT_EQ(markdown_code("a`b"), "``a`b``");
  EXPECT_EQ(markdown_code("``"), "``` `` ```");
  EXPECT_EQ(markdown_code(" a "), "`  a  `");
  EXPECT_EQ(markdown_code("a\n\n<b>"), "`a\\u000a\\u000a<b>`");
}

}  // namespace
}  // namespace tandem::eval
