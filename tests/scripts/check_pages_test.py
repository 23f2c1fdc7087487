"""Tests of scripts/check_pages.py, on pages of a few lines and on this tree."""
import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import check_pages
from check_pages import NUMBER, anchors, sentences, word_count

GOOD = {
    "README.md": "# Suite\nA page that [leads](docs/page.md#one-more) on. It has 1, 2 and 3.\n",
    "docs/page.md": "# Page\n## One more\nHow long is this? Short.\n\n    Of code\n\n```\nWhat a [code](none.md)\n```\n",
    "studies/notes/a.md": "Of notes no sentence is judged. [Back](../../README.md#suite)\n",
}


class CheckPagesTest(unittest.TestCase):
    def said(self, files: dict[str, str]) -> tuple[int, list[str]]:
        """Exit code and what is said of GOOD with these files in place of its own or beside them."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {**GOOD, **files}.items():
                file = Path(folder) / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            written = io.StringIO()
            with (mock.patch.object(sys, "argv", ["check_pages.py", folder]), contextlib.redirect_stdout(io.StringIO()),
                  contextlib.redirect_stderr(written)):
                code = check_pages.main()
            return code, written.getvalue().strip().split("\n") if written.getvalue() else []

    def test_good_pages(self):
        self.assertEqual(self.said({}), (0, []))
        self.assertEqual(self.said({"docs/a.md": "<!-- made: rows -->\n" + "| Word |\n" * 22_000 + "<!-- end -->\n"}), (0, []))

    def test_one_finding_each(self):
        many = " ".join(["word"] * 33) + ". "
        for name, text, what in (
                ("docs/a.md", "[A](b.md)", "docs/a.md: the link b.md leads nowhere."),
                ("docs/a.md", "[A](../README.md#two)", "docs/a.md: the link ../README.md#two names no heading there."),
                ("studies/notes/b.md", "[A](#two)", "studies/notes/b.md: the link #two names no heading there."),
                ("docs/a.md", "![A](a.svg)", "docs/a.md: the link a.svg leads nowhere."),
                ("docs/a.md", "Fine. Whose turn it is stays open.", "docs/a.md: begins with 'Whose' and is no question: Whose turn it is stays open."),
                ("docs/a.md", "# What a page says", "docs/a.md: begins with 'What' and is no question: What a page says"),
                ("README.md", "# Suite\nFour of them are 1, 2, 3 and 4 today.",
                 "README.md: 4 figures in a sentence: Four of them are 1, 2, 3 and 4 today."),
                ("README.md", "word " * 901 + ". Two. Three. Four.", "words of README.md are 904, and 900 at most are wanted."),
                ("docs/a.md", "Word. " * 22_000, "words of user pages are 22025, and 22000 at most are wanted."),
                ("methods/m/README.md", many, "words of a sentence, 95th percentile, are 33, and 32 at most are wanted."),
                ("bench/README.md", "A b c d e f g h i j k l m n o p q. " * 20, "words of a sentence, median, are 17, and 16 at most are wanted.")):
            with self.subTest(what):
                code, said = self.said({name: text})
                self.assertEqual(code, 1)
                self.assertIn(f"check_pages.py: {what}", said)

    def test_sentences(self):
        self.assertEqual(sentences("# Head\nOne `a. B` two. Three [of\nthem](x.md#y). Four e.g. five: six; seven!\n"),
                         ["One `c` two.", "Three of them.", "Four e.g. five: six; seven!"])
        self.assertEqual(sentences("* **Bold.** Item of words\n  that goes on\n* next\n"), ["Bold. Item of words that goes on", "next"])
        self.assertEqual(sentences("| a | b. C |\n|---|---|\n\n![p](q.svg)\n\n    code. More\n\n<!-- a. B -->\n1.5, 2.5 and 3.5 ms\n"), [])
        self.assertEqual(sentences("Xiao et al. Have it. `b` begins one."), ["Xiao et al. Have it.", "`c` begins one."])

    def test_anchors(self):
        self.assertEqual(anchors("# A `b`, c & d\n## Two\n```\n# none\n```\n## Two\n"), {"a-b-c--d", "two", "two-1"})

    def test_figures_and_words(self):
        self.assertEqual(NUMBER.findall("At 1,024 tokens x86-64 takes 3.5 ms, -2 % of `c` in C++20."), ["1,024", "3.5", "-2"])
        self.assertEqual(word_count("| a | – | 2 |"), 2)

    def test_this_tree(self):
        with mock.patch.object(sys, "argv", ["check_pages.py", str(ROOT)]), contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(check_pages.main(), 0)


if __name__ == "__main__":
    unittest.main()
