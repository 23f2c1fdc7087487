"""Tests of scripts/wrap_pages.py."""
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "scripts"))

from wrap_pages import WIDTH, wrapped

WORDS = "some words of prose that go on and on, with `code` and [a link](docs/page.md) in them "


class WrapTest(unittest.TestCase):
    def test_prose_is_wrapped_and_says_the_same(self):
        for first, rest in (("", ""), ("* ", "  "), ("  - ", "    "), ("12. ", "    ")):
            text = first + WORDS * 5 + "\n" + rest + WORDS + "\n"
            lines = wrapped(text).rstrip("\n").split("\n")
            self.assertGreater(len(lines), 3)
            self.assertTrue(all(len(line) <= WIDTH for line in lines), lines)
            self.assertTrue(all(len(a) + 1 + len(b.split()[0]) > WIDTH for a, b in zip(lines, lines[1:], strict=False)), "full")
            self.assertTrue(all(line.startswith(rest) for line in lines[1:]))
            self.assertEqual(" ".join(lines).split(), text.split())
            self.assertEqual(wrapped(wrapped(text)), wrapped(text))

    def test_what_is_no_prose_stays(self):
        long = "x " * 100
        for text in (f"# {long}", f"| {long} |", f"    {long}", f"```\n{long}\n```", f"<!--\n{long}\n-->", f"![{long}](a.svg)",
                     f"[1]: {long}", f"> {long}"):
            self.assertEqual(wrapped("\n" + text + "\n"), "\n" + text + "\n")

    def test_code_right_behind_something_else_stays(self):
        for text in ("## Head\n    one  # two\n    three\n", "prose\n```\none\ntwo\n```\n", "1. item\n   ```\n   one\n   two\n   ```\n",
                     "````\none\n```\ntwo\nthree\n````\n", "```\necho ```\ntwo\nthree\n```\n"):
            self.assertEqual(wrapped(text), text)

    def test_no_line_begins_with_what_would_mean_something_else(self):
        for mark in ("-", "+", "*", "7.", "#", ">", "|", "<b>"):
            for letters in range(60, WIDTH + 1):
                lines = wrapped("y" * letters + f" {mark} " + "z " * 100).split("\n")
                self.assertFalse([line for line in lines if line.startswith(mark)], (mark, letters))

    def test_lines_that_were_broken_on_purpose_stay_broken(self):
        for end in ("  ", "\\"):
            self.assertEqual(wrapped(f"one{end}\ntwo\nthree"), f"one{end}\ntwo three")


if __name__ == "__main__":
    unittest.main()
