"""near_best.py's figures of a layer, on attention made by hand. Exit code 77 where PyTorch or transformers are missing."""
import math
import sys
import unittest
from pathlib import Path

try:
    import torch
    import transformers  # noqa: F401: the script imports it
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))
import near_best


class NearBestTest(unittest.TestCase):
    def test_figures_of_a_layer(self):
        # Scores by head, query and token. One head looks at the first token, the other at the last.
        scores = torch.full((2, 1, 10), -20.0)
        scores[0, 0, 0], scores[0, 0, 5:8] = 9.0, torch.tensor([5.5, 4.9, 2.0])
        scores[1, 0, 9], scores[1, 0, 2], scores[1, 0, 4] = 3.0, 1.0, -1.5
        sink, near, without, mass = near_best.of_layer(scores.softmax(-1), 4.0)
        self.assertEqual(sink, 50)
        self.assertEqual(near, (2 + 2) / 2)  # 9 and 5.5; 3 and 1
        self.assertEqual(without, (3 + 1) / 2)  # 5.5, 4.9 and 2; 3, since -1.5 is further away
        kept = (math.exp(9) + math.exp(5.5)) / sum(map(math.exp, (9, 5.5, 4.9, 2)))
        other = (math.exp(3) + math.exp(1)) / sum(map(math.exp, (3, 1, -1.5)))
        self.assertAlmostEqual(mass, 100 * (kept + other) / 2, places=3)


if __name__ == "__main__":
    unittest.main()
