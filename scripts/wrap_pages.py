#!/usr/bin/env python3
"""Wraps the prose of Markdown pages at 120 columns, so that a page reads in an editor, and a change shows its own lines.

  python3 scripts/wrap_pages.py [--check] FILE...      --check: changes nothing; exit code 1 where a page is not in order

Paragraphs and list items are wrapped; tables, headings, code, pictures, HTML and comments stay as they are. Lines that were
broken on purpose (two spaces or a backslash at the end) stay broken. Tables begin with |, headings with #, and code is indented
by spaces or fenced, as in these pages.
"""
import argparse
import re
import sys
from pathlib import Path

WIDTH = 120
ITEM = re.compile(r"\s*(?:[*+-]|\d+[.)])\s+")
# What no paragraph is, and what would become something else at the start of a line.
ALONE = re.compile(r"\s*(?:$|[#|<>]|`{3,}|~{3,}|!\[|\[[^\]]+\]:|(?:-{3,}|={3,}|\*{3,})\s*$)")
BINDS = re.compile(r"(?:[*+-]|\d+[.)]|#+|>.*|\|.*|=+|-{2,}|~{3,}.*|`{3,}.*|<.*)$")

FENCE = re.compile(r"`{3,}|~{3,}")


def filled(words: list[str], first: str, rest: str) -> list[str]:
    pieces: list[str] = []
    for word in words:
        if pieces and BINDS.match(word):
            pieces[-1] += " " + word
        else:
            pieces.append(word)
    lines = [first + pieces[0]]
    for piece in pieces[1:]:
        if len(lines[-1]) + 1 + len(piece) > WIDTH:
            lines.append(rest + piece)
        else:
            lines[-1] += " " + piece
    return lines


def is_broken(line: str) -> bool:
    return line.endswith(("  ", "\\"))


def wrapped(text: str) -> str:
    lines, out, at = text.split("\n"), [], 0
    until = None  # the end of code or of a comment that we are in
    while at < len(lines):
        line = lines[at]
        at += 1
        if until is not None:
            ends = until in line if until == "-->" else line.lstrip().startswith(until)
            until = None if ends else until
        elif line.lstrip().startswith(("```", "~~~")):
            until = FENCE.match(line.lstrip()).group(0)
        elif line.lstrip().startswith("<!--") and "-->" not in line:
            until = "-->"
        elif not ALONE.match(line) and not (line.startswith("    ") and not ITEM.match(line) and is_code_place(out)):
            item = ITEM.match(line)
            first = item.group(0) if item else line[:len(line) - len(line.lstrip())]
            words, last = line[len(first):].split(), line
            while at < len(lines) and not is_broken(last) and not ALONE.match(lines[at]) and not ITEM.match(lines[at]):
                last = lines[at]
                words += last.split()
                at += 1
            made = filled(words, first, " " * len(first))
            made[-1] += "  " if last.endswith("  ") else ""
            out += made
            continue
        out.append(line)
    return "\n".join(out)


def is_code_place(out: list[str]) -> bool:
    """Whether an indented line is code here: behind what is no paragraph, or other code."""
    return not out or bool(ALONE.match(out[-1])) or out[-1].startswith("    ")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="say which pages are not in order")
    parser.add_argument("files", nargs="+", type=Path)
    options = parser.parse_args()
    wrong = []
    for file in options.files:
        text = file.read_text(encoding="utf-8")
        new = wrapped(text)
        if new == text:
            continue
        wrong.append(str(file))
        if not options.check:
            file.write_text(new, encoding="utf-8")
    if options.check and wrong:
        print(f"wrap_pages.py: not wrapped at {WIDTH} columns: {', '.join(wrong)}", file=sys.stderr)
    return 1 if options.check and wrong else 0


if __name__ == "__main__":
    sys.exit(main())
