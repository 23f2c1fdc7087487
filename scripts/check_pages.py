#!/usr/bin/env python3
"""Checks the Markdown pages of the repository: links, lengths and sentences. Exit code 1 where something is wrong.

  python3 scripts/check_pages.py [--by-page] [FOLDER]      --by-page: also print each user page's words and sentences

User pages are README.md, docs/, bench/README.md and the README.md of each folder of methods/ and hardware/.

* Links of all pages: the file exists, and so does the heading that an #anchor names (GitHub's rule for anchors).
* Words: those of a user page, tables and code included. A word has a letter or a digit: a table's bars are none. README.md
  has a limit, and so have all user pages together. Rows that a script makes of data, between `<!-- made: NAME -->` and
  `<!-- end -->`, are looked up and not read, and do not count.
* Sentences of user pages are counted in prose: paragraphs and list items. Tables, code, pictures, comments and headings are
  left out, and so are list items that are mostly figures. A code span, a link's text and a number count as the words that a
  reader sees, a code span as one. A sentence ends at . ! or ? before a space and a capital, a digit, a code span, a bold word
  or a bracket, or with its paragraph or item. A colon or a semicolon ends none, and a bold label counts with its sentence. The median and the 95th percentile are over
  all sentences of all user pages.
* A sentence or heading that begins with one of BEGINNINGS must be a question.
* README.md and the tutorial have few figures in a sentence; digits inside names and code spans are none.
"""
import argparse
import re
import subprocess
import sys
from pathlib import Path

USER_PAGES = ("README.md", "bench/README.md", "docs/*.md", "methods/*/README.md", "hardware/*/README.md")
WORDS, README_WORDS = 22_000, 900
MEDIAN, LONG = 16, 32  # words of a sentence: at most in the median, and at the 95th percentile
FEW_FIGURES = {"README.md": 3, "docs/tutorial.md": 3}
BEGINNINGS = re.compile(r"(?:Of|What|Whose|Who|That)\b")

FENCE = re.compile(r"^( *)(`{3,}|~{3,}).*?^\1\2[ \t]*$", re.M | re.S)
COMMENT = re.compile(r"<!--.*?-->", re.S)
MADE = re.compile(r"<!-- made: .*?<!-- end -->", re.S)
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
CODE = re.compile(r"(`+)(.+?)\1", re.S)
ITEM = re.compile(r"^\s*(?:[*+-]|\d+[.)])\s+")
HEADING = re.compile(r"^#+\s+(.*?)\s*#*$")
END = re.compile(r"(?<!\bal)(?<!\bvs)(?<!\bSec)(?<!\bFig)(?<!\bEq)[.!?][)\"'”]?\s+(?=[A-Z0-9`*(\[\"“])")
NUMBER = re.compile(r"(?<![\w.,#+-])[-+±]?\d[\d,.]*")


def without_code(text: str) -> str:  # indented code goes in blocks()
    return COMMENT.sub("", FENCE.sub("", text))


def headings(text: str) -> list[str]:
    return [found.group(1) for line in without_code(text).split("\n") if (found := HEADING.match(line))]


def anchors(text: str) -> set[str]:
    """GitHub's: letters, digits, - and _ of the heading in small letters, - for a space, and -1, -2 behind repeated ones."""
    seen: dict[str, int] = {}
    for heading in headings(text):
        plain = LINK.sub(r"\1", heading).replace("`", "").replace("*", "")
        name = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        seen[name] = seen.get(name, -1) + 1
        if seen[name]:
            seen[f"{name}-{seen[name]}"] = 0
    return set(seen)


def blocks(text: str) -> list[str]:
    """Paragraphs and list items, each on one line."""
    out: list[str] = []
    going = False  # the block before goes on in the next line
    for line in without_code(text).split("\n"):
        bare = line.strip()
        if not bare or bare.startswith(("#", "|", "![", "<", ">")) or re.fullmatch(r"[-=*]{3,}", bare):
            going = False
        elif line.startswith("    ") and not going and not ITEM.match(line):
            continue  # code
        elif going and not ITEM.match(line):
            out[-1] += " " + bare
        else:
            out.append(ITEM.sub("", bare))
            going = True
    return [block for block in out if sum(bool(re.search(r"\d", word)) for word in block.split()) <= len(block.split()) / 2]


def sentences(text: str) -> list[str]:
    out = []
    for block in blocks(text):
        plain = CODE.sub("`c`", LINK.sub(r"\1", block))
        out += [found.replace("*", "").strip() for found in END.sub(lambda end: end.group(0).strip() + "\n", plain).split("\n")]
    return [sentence for sentence in out if re.search(r"\w", sentence)]


def word_count(text: str) -> int:
    return sum(bool(re.search(r"\w", word)) for word in text.split())


def percentile(lengths: list[int], percent: int) -> int:
    return sorted(lengths)[min(len(lengths) * percent // 100, len(lengths) - 1)] if lengths else 0


def broken_links(root: Path, page: Path, text: str) -> list[str]:
    wrong = []
    for _, target in LINK.findall(CODE.sub("", without_code(text))):
        name, _, anchor = target.partition("#")
        file = (page.parent / name) if name else page
        if re.match(r"[a-z]+:", target):
            continue
        if not file.resolve().is_relative_to(root.resolve()) or not file.exists():
            wrong.append(f"the link {target} leads nowhere")
        elif anchor and anchor not in anchors(file.read_text(encoding="utf-8")):
            wrong.append(f"the link {target} names no heading there")
    return wrong


def pages_of(root: Path) -> list[Path]:
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-co", "--exclude-standard", "*.md"], capture_output=True, text=True, check=False)
    names = listed.stdout.split("\n") if listed.returncode == 0 else [str(file.relative_to(root)) for file in root.rglob("*.md")]
    return sorted(root / name for name in names if name and (root / name).is_file())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--by-page", action="store_true", help="print words and sentences of each user page")
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parent.parent, metavar="FOLDER")
    options = parser.parse_args()
    root, wrong, words, lengths = options.root, [], {}, []
    users = {file for pattern in USER_PAGES for file in root.glob(pattern)}
    for page in pages_of(root):
        text, name = page.read_text(encoding="utf-8"), str(page.relative_to(root))
        wrong += [f"{name}: {what}." for what in broken_links(root, page, text)]
        if page not in users:
            continue
        words[name] = word_count(MADE.sub("", text))
        said = sentences(text)
        own = [word_count(sentence) for sentence in said]
        lengths += own
        wrong += [f"{name}: begins with '{line.split()[0]}' and is no question: {line[:60]}"
                  for line in said + headings(text) if BEGINNINGS.match(line) and "?" not in line]
        wrong += [f"{name}: {len(found)} figures in a sentence: {sentence[:60]}"
                  for sentence in said if len(found := NUMBER.findall(sentence)) > FEW_FIGURES.get(name, 1000)]
        if options.by_page:
            print(f"{words[name]:6} words, {len(own):4} sentences, median {percentile(own, 50)}, 95th percentile {percentile(own, 95)}  {name}")
    total, middle, long = sum(words.values()), percentile(lengths, 50), percentile(lengths, 95)
    for what, value, most in (("words of README.md", words.get("README.md", 0), README_WORDS), ("words of user pages", total, WORDS),
                              ("words of a sentence, median,", middle, MEDIAN), ("words of a sentence, 95th percentile,", long, LONG)):
        if value > most:
            wrong.append(f"{what} are {value}, and {most} at most are wanted.")
    for line in wrong:
        print(f"check_pages.py: {line}", file=sys.stderr)
    print(f"check_pages.py: {len(words)} user pages, {total:,} words (README.md {words.get('README.md', 0)}), {len(lengths):,} sentences of {middle} "
          f"words in the median and {long} at the 95th percentile; {len(wrong)} findings.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
