"""Tests of eval/report/plotting.py and pareto.py: the looks of methods, and the front. Exit code 77 without matplotlib.

  python3 tests/scripts/plotting_test.py --tandem build/release/bin/tandem
"""
import itertools
import random
import subprocess
import sys
import unittest
from pathlib import Path

import program

program.need("matplotlib")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "eval" / "report"))
import pareto
import plotting


def luminance(colour):
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


class PlottingTest(unittest.TestCase):
    def test_every_method_of_the_suite_has_a_look_of_its_own(self):
        listed = subprocess.run([program.path, "methods"], capture_output=True, text=True, check=True).stdout
        names = [line.split()[0] for line in listed.split("\n\n")[0].splitlines() if line.startswith("  ") and line[2] != " "]
        self.assertGreater(len(names), 10)
        self.assertEqual(set(names) - set(plotting.METHODS), set(), "methods without a look")
        points = [plotting.METHODS[name][:2] for name in plotting.METHODS]
        self.assertEqual(len(set(points)), len(points), "colour and marker tell methods apart without lines")

    def test_a_look_does_not_depend_on_the_figure(self):
        alone = plotting.line_styles(["hgca"])["hgca"]
        self.assertEqual(plotting.line_styles(["full", "quest", "hgca:beta=0.5"])["hgca:beta=0.5"], alone)
        self.assertEqual(plotting.look_of("my-method:a=1"), plotting.look_of("my-method"))
        self.assertNotIn(plotting.look_of("my-method")[0], plotting.COLOURS)

    def test_settings_of_a_method_are_told_apart(self):
        specs = [f"quest:budget={n}" for n in range(8)]
        styles = plotting.line_styles(specs)
        self.assertEqual(len({(style["color"], style["fillstyle"]) for style in styles.values()}), len(specs))
        self.assertEqual({style["marker"] for style in styles.values()}, {plotting.METHODS["quest"][1]})

    def test_colours_are_seen_on_white(self):
        for colour in [colour for colour, *_ in plotting.METHODS.values()] + plotting.OTHER_COLOURS:
            self.assertGreater(1.05 / (luminance(colour) + 0.05), 2, colour)

    def test_the_order_is_the_palettes(self):
        self.assertEqual(plotting.in_order(["mine", "hgca", "quest:budget=2", "quest:budget=1", "full"]),
                         ["full", "quest:budget=2", "quest:budget=1", "hgca", "mine"])

    def test_dashes_say_what_they_mean(self):
        self.assertEqual(plotting.dash_handles(["full", "quest"]), ([], []))
        self.assertEqual(plotting.dash_handles(["full", "hgca"])[1], ["KV on the device", "the CPU attends"])

    def test_the_front_is_what_no_other_beats(self):
        chance = random.Random(1)
        for _ in range(100):
            points = {str(i): (chance.randrange(1, 5), chance.randrange(5)) for i in range(7)}
            beaten = {a for (a, (cost, score)), (_, (other_cost, other)) in itertools.permutations(points.items(), 2)
                      if other_cost <= cost and other >= score and (other_cost, other) != (cost, score)}
            self.assertEqual(set(pareto.front(points, lambda a, b: a >= b)), set(points) - beaten)


if __name__ == "__main__":
    program.main()
