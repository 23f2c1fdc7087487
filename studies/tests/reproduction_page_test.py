"""reproduction_page.py: items.json and docs/reproduction.md as results have them; the arithmetic of published numbers."""
import copy
import re
import sys
import unittest
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))
from reproduction_page import ITEMS, PAGE, ROOT, VERDICTS, as_file, completed, filled, judged, page, read

SOURCES = {"ScoutAttention": 10, "Fluxion": 14, "AsyncSpade": 9, "HGCA": 12, "Long-context serving": 7}
ROUNDING = 0.0051  # of numbers with two decimals


def wrong_rows(rows):
    """Rows of a Fluxion table, {name: six scores and the printed difference}, that disagree with themselves."""
    wrong = [name for name, row in rows.items() if abs(row[5] - row[0] - row[6]) > ROUNDING]
    scores = [row for name, row in rows.items() if name != "Average"]
    return wrong + ["Average" for i in range(7) if abs(sum(row[i] for row in scores) / len(scores) - rows["Average"][i]) > ROUNDING]


class ReproductionPageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.items = read(str(ITEMS.relative_to(ROOT)))["items"]

    def test_file_and_page_are_as_made(self):
        items = [completed(item) for item in self.items]
        self.assertEqual(ITEMS.read_text(encoding="utf-8"), as_file(items))
        self.assertEqual(PAGE.read_text(encoding="utf-8"), page(items))

    def test_every_table_and_figure_has_a_row(self):
        self.assertEqual(dict(Counter(item["source"] for item in self.items)), SOURCES)
        self.assertEqual(len({(item["source"], item["item"]) for item in self.items}), len(self.items))
        for item in self.items:
            with self.subTest(item["source"], item=item["item"]):
                self.assertIn(item["verdict"], VERDICTS)
                self.assertTrue(item["verdict"] != "planned" or item["source"] == "Long-context serving")
                self.assertTrue("command" in item or item["verdict"] in ("not", "planned"))
                self.assertTrue(item["reason"].endswith(".") and not re.match(r"(Of|What|Whose|Who|That)\b", item["reason"]))

    def test_numbers_are_taken_from_files(self):
        self.assertEqual(filled("{published/scoutattention:Table 1/cosine|max} of {published/scoutattention:Figure 6/change_below:.0%}"), "0.97 of 15 %")
        self.assertEqual(filled("{results/reproduce-scout.json:cells/name=HGCA idle/published:.0%}"), "57 %")
        self.assertRaises(KeyError, filled, "{published/scoutattention:Table 9}")

    def test_verdicts(self):
        for numbers, orders, verdict in (([True] * 9 + [False], [True], "reproduced"), ([True] * 8 + [False] * 2, [True], "partly"),
                                         ([False], [True] * 9, "not"), ([], [True], "reproduced"), ([], [False], "not"),
                                         ([True], [True, False], "partly")):
            self.assertEqual(judged(numbers, orders), verdict)

    def test_averages_and_differences(self):
        fluxion = read("published/fluxion")
        for table in ("Table 2", "Table 3"):
            for rows in fluxion[table]["rows"].values():
                self.assertEqual(wrong_rows(rows), [])
        for rows in fluxion["Table 4"]["rows"].values():
            for name, row in rows.items():
                if name != "Fluxion - FULL":
                    self.assertAlmostEqual(sum(row[:5]) / 5, row[5], delta=ROUNDING, msg=name)
            for full, own, difference in zip(rows["FULL"], rows["Fluxion"], rows["Fluxion - FULL"], strict=True):
                self.assertAlmostEqual(own - full, difference, delta=ROUNDING)
        swapped = copy.deepcopy(fluxion["Table 3"]["rows"]["Llama-3.1-8B-Instruct"])
        swapped["News Summ"][1] = 18.46  # 19.46
        self.assertEqual(wrong_rows(swapped), ["Average"])

    def test_speed_ups_follow_from_table_5(self):
        cells = {cell["name"]: cell["published"] for cell in read("hardware/experiments/fluxion.json")["cells"]}
        checked = 0
        for name, published in cells.items():
            if found := re.fullmatch(r"(\w+), (\d+ x \d+K): Fluxion over \(16,0\.05\)", name):
                step = [cells[run + ": idle ms"] / cells[run + ": idle"] for method in ("(16,0.05)", "Fluxion")
                        for run in [f"{found.group(1)} {method}, {found.group(2)}"]]
                self.assertAlmostEqual(step[0] / step[1], published, delta=ROUNDING)
                checked += 1
        self.assertEqual(checked, 10)

    def test_bytes_of_a_pack_over_its_time(self):
        """AsyncSpade's bandwidth times its inference is the same for a layer of a model on either GPU."""
        layer = {}
        for row in read("results/reproduce-asyncspade-table2.json")["rows"]:
            layer.setdefault(row["model"], []).append(row["published"]["bandwidth"] * row["published"]["inference_ms"] / row["pack"])
        for products in layer.values():
            self.assertEqual(len(products), 8)
            self.assertLess(max(products) / min(products), 1.0005)

    def test_blocks_of_the_article(self):
        article = read("published/long_context_serving")
        for tokens, megabytes, ms in article["block transfer"]["rows"]:
            self.assertAlmostEqual(2 * 80 * 8 * 128 * tokens * 2 / 1e6, megabytes, delta=ROUNDING)
            self.assertAlmostEqual(megabytes / article["block transfer"]["link_gbps"] / ms, 1, delta=0.003)
        limit = article["restore limit"]
        self.assertEqual(limit["step_ms"] * limit["link_gbps"] / limit["block_mb"], limit["blocks"])
        self.assertEqual(limit["blocks"] * 32, limit["tokens"])
        for model, context, heads, dim, layers, fp16, fp8 in article["KV memory"]["rows"]:
            self.assertAlmostEqual(fp16 / 2, fp8, delta=2 * ROUNDING)
            self.assertGreater(2 * layers * heads * dim * int(context[:-1]) * 1024 * 2 / 1e9 / fp16, 8, model)  # no total follows


if __name__ == "__main__":
    unittest.main()
