"""readme_results.py: the Pareto front, and README.md as results/readme.json has it."""
import json
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))
import readme_results
from readme_results import BEGIN, END, KEPT, ROOT, front, results, wrapped


class ReadmeResultsTest(unittest.TestCase):
    def test_front(self):
        points = {"cheap": (0.199, 0.1), "alike": (0.204, 0.7), "worse": (0.35, 0.6), "better": (0.5, 0.9), "as_good": (0.6, 0.9), "all": (1, 1)}
        rows = [{"name": name, "share": share, "accuracy": accuracy} for name, (share, accuracy) in points.items()]
        self.assertEqual([row["name"] for row in front(rows)], ["alike", "better", "all"])

    def test_readme_has_the_figures(self):
        data = json.loads(KEPT.read_text(encoding="utf-8"))
        page = (ROOT / "README.md").read_text(encoding="utf-8")
        self.assertEqual(page[page.index(BEGIN):page.index(END) + len(END)], wrapped(results(data)))
        self.assertTrue((ROOT / "results" / "readme.svg").exists())

    def test_a_window_without_salient_tokens_stands_below_hgca(self):
        lines = readme_results.table(json.loads(KEPT.read_text(encoding="utf-8"))).split("\n")
        own = next(i for i, line in enumerate(lines) if line.startswith("| `hgca` "))
        self.assertTrue(lines[own + 1].startswith(f"| `{readme_results.TWIN}` "))

    def test_methods_that_touch_more_stand_at_the_end(self):
        lines = readme_results.table(json.loads(KEPT.read_text(encoding="utf-8"))).split("\n")[2:]
        self.assertEqual(sorted(lines, key=lambda line: ("at least" in line) + 2 * ("100 %" in line)), lines)


if __name__ == "__main__":
    unittest.main()
