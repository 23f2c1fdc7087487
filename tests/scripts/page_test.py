"""Tests of eval/tables/page.py: the HTML page of a run's report. Exit code 77 without the package markdown."""
import html.parser
import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import program

program.need("markdown")
ROOT = Path(__file__).resolve().parents[2]

REPORT = """# RULER on tiny

2 samples per task and length, seed 1, complete. Times are simulated for h200

- Within noise of full: quest:budget=512,page=32.

![The score over what a step costs](pareto.png)

## Accuracy

| method | accuracy, % [95 %] | TPOT ms |
|---|---:|---:|
| full | 100.0 [51.0, 100.0] | 0.5 |
| quest:budget=512,page=32 | 50.0 [15.0, 85.0] | - |

## By task

| task | length | full | quest:budget=512,page=32 |
|---|---|---:|---:|
| <script src=x> | 1K | 100.0 | 50.0 |

## How it was made

- command: `tandem compare <img src=http://e/x>`
- machine: A CPU, 2 cores, 2 threads
"""


class Page(html.parser.HTMLParser):
    """Its tables as (class, text) of cells, what it loads, and its headings."""

    def __init__(self, text):
        super().__init__()
        self.tables, self.loads, self.inside, self.parts = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.loads += [found[name] for name in ("src", "href", "data", "action") if name in found]
        self.inside.append(tag)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append([found.get("class"), ""])
        if tag in ("h1", "h2", "img", "details"):
            self.parts.append([tag, ""])

    def handle_endtag(self, tag):
        while self.inside and self.inside.pop() != tag:
            pass

    def handle_data(self, data):
        if "td" in self.inside or "th" in self.inside:
            self.tables[-1][-1][-1][1] += data
        elif self.inside and self.inside[-1] in ("h1", "h2", "summary"):
            self.parts[-1][1] += data


class PageTest(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = Path(made.name)

    def page_of(self, report, tables=""):
        (self.folder / "report.md").write_text(report)
        (self.folder / "pareto.svg").write_text("<svg/>")
        run = {"name": "a", "folder": bytes(self.folder).hex(), "complete": True}
        page = {"title": "a page", "tables": tables, "runs": [run], "made_by": "Made by a test."}
        done = subprocess.run([sys.executable, str(ROOT / "eval/tables/page.py")], input=json.dumps(page), capture_output=True, text=True,
                              check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def test_nothing_is_loaded_from_elsewhere(self):
        text = self.page_of(REPORT)
        self.assertEqual([loaded.split(",")[0] for loaded in Page(text).loads], ["data:image/svg+xml;base64"])
        self.assertIn("default-src 'none'", text)
        self.assertNotIn("@import", text)
        self.assertNotIn("url(", text)

    def test_the_policy_lets_the_pages_own_script_and_style_run(self):
        sys.path.insert(0, str(ROOT / "eval" / "tables"))
        import page
        text = self.page_of(REPORT)
        for tag in ("style", "script"):
            inside = re.search(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)[1]
            self.assertIn(page.digest(inside), text)

    def test_the_figure_is_before_the_tables_and_the_making_is_folded(self):
        parts = Page(self.page_of(REPORT)).parts
        self.assertEqual(parts, [["h1", "RULER on tiny"], ["img", ""], ["h2", "Accuracy"], ["h2", "By task"], ["details", "How it was made"]])

    def test_the_machine_is_named_once(self):
        text = self.page_of(REPORT)
        self.assertEqual(text.count("simulated for h200"), 1)
        self.assertEqual(text.count("machine: "), 1)

    def test_cells_are_aligned_with_their_heads(self):
        tables = Page(self.page_of(REPORT)).tables
        self.assertEqual([len(table) for table in tables], [3, 2])
        for table in tables:
            for row in table[1:]:
                self.assertEqual([kind for kind, _ in row], [kind for kind, _ in table[0]])
        self.assertEqual([kind for kind, _ in tables[0][0]], ["name", "figure", "figure"])
        self.assertEqual([kind for kind, _ in tables[1][0]], ["name", None, "figure", "figure"])
        self.assertEqual(tables[1][1][0][1], "<script src=x>")

    def test_one_runs_report_has_all_tables(self):
        self.assertNotIn("side by side", self.page_of(REPORT, "side by side"))
        (self.folder / "report.md").unlink()
        self.assertEqual(Page(self.page_of("no title\n")).parts, [["h1", "a page"]])


if __name__ == "__main__":
    program.main()
