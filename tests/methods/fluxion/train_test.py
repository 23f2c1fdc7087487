"""Tests of methods/fluxion/train.py; skipped, saying so, where PyTorch or numpy are not installed.

  python3 tests/methods/fluxion/train_test.py
"""
import importlib.util
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "methods/fluxion/train.py"
MISSING = [m for m in ("torch", "numpy") if importlib.util.find_spec(m) is None]
if not MISSING:
    import numpy as np
    sys.path.insert(0, str(SCRIPT.parent))
    import train


def write_collection(folder, finished=True):
    """Ten prompts whose labels follow from two features: what `tandem fluxion collect` writes, in small."""
    r = np.random.default_rng(7)
    names = [f"features_{i}" for i in range(41)]
    names[35] = "anchor_budget_16"
    shards = []
    for i in range(10):
        n = 64
        features = r.normal(size=(n, 41)).astype(np.float32)
        streaming = np.repeat(features[:, :1] > 0, 3, 1)
        budgets = np.where(streaming[:, :, None], 0, np.clip(0.3 + 0.1 * features[:, 1:2, None], 0, 1)).astype(np.float32)
        tensors = {"features": features, "anchor_budgets": np.zeros((n, 2, 3, 4), np.float32),
                   "budgets": np.stack([0 * budgets, budgets], 1).repeat(5, 3),
                   "slopes": np.zeros((n, 2, 3), np.float32), "steps": np.zeros(n, np.int32)}
        file = folder / f"task-{1024 * (1 + i % 2)}-{i:04}.safetensors"
        train.write_tensors(file, {**tensors, "streaming": np.stack([streaming, streaming], 1).astype(np.int32)})
        shards.append({"file": file.name, "tokens": 1000, "rows": n, "hash": ""})
    plan = {"model": "made up", "weights_hash": "0", "prompts": "random", "layers": 1, "q_heads": 64, "kv_heads": 1,
            "head_dim": 8, "sinks": 64, "window": 256, "decode_steps": 1, "steps": 1, "taus": [0.5, 0.1], "mass": 0.95, "seed": 1,
            "isa": "any", "features": names, "policies": ["fluxion", "output", "score"], "blocks": [1, 16, 32, 64, 128]}
    manifest = {"schema": "tandem-fluxion-2", "plan": plan, "shards": shards, "finished": finished}
    (folder / "manifest.json").write_text(json.dumps(manifest))


@unittest.skipIf(MISSING, f"not installed: {', '.join(MISSING)}")
class TrainTest(unittest.TestCase):
    def run_script(self, data, out, *more):
        return subprocess.run([sys.executable, str(SCRIPT), "--data", str(data), "--out", str(out), "--epochs", "60",
                               "--batch", "32", "--hidden", "16", *more], capture_output=True, text=True, check=False)

    def test_learns_what_can_be_known_and_gives_the_same_file_again(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_collection(folder)
            outs = [folder / "a.safetensors", folder / "b.safetensors"]
            for out in outs:
                done = self.run_script(folder, out, "--vector", str(folder / "v.json"))
                self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(outs[0].read_bytes(), outs[1].read_bytes())
            report = json.loads((folder / "a.json").read_text())
            self.assertEqual(report["parameters"], 41 * 16 + 16 + 16 * 3 + 3)
            self.assertEqual(report["held_out"]["prompts"], 2)
            self.assertGreater(report["held_out"]["streaming"]["auc"], 0.95)
            self.assertGreater(report["held_out"]["retrieval_heads"]["budget"]["r2"], 0.7)
            tensors = train.read_tensors(outs[0])
            self.assertEqual(tensors["model"].tolist(), [1, 64, 1, 8, 64, 256, 0])
            np.testing.assert_allclose(tensors["limits"], [0.1, 0.95], rtol=1e-6)
            vector = json.loads((folder / "v.json").read_text())
            found = train.forward(tensors, np.array(vector["features"], np.float32))
            np.testing.assert_allclose(found, vector["outputs"], rtol=1e-6)

    def test_losses_differ_in_what_they_ask(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_collection(folder)
            short = {}
            for label, more in {"half": ["--quantile", "0.5"], "most": ["--quantile", "0.95"],
                                "measured": ["--loss", "measured"]}.items():
                done = self.run_script(folder, folder / f"{label}.safetensors", *more)
                self.assertEqual(done.returncode, 0, done.stderr)
                report = json.loads((folder / f"{label}.json").read_text())
                short[label] = report["held_out"]["blocks"]["32"]["too_little"]
            self.assertLess(short["most"], 0.25)
            self.assertGreater(short["half"], short["most"])
            done = self.run_script(folder, folder / "p.safetensors", "--tau", "0.3")
            self.assertIn("has labels for 0.5, 0.1", done.stderr)

    def test_the_covering_line_is_nowhere_too_low(self):
        budgets = np.random.default_rng(1).random((500, 5)).astype(np.float32)
        budgets[0] = [0, 0.2, 0.3, 0.35, 0.36]
        bgt0, slope = train.covering_line(budgets)
        line = bgt0[:, None] + slope[:, None] * np.log2(train.BLOCKS)
        self.assertTrue((line[:, 1:] >= budgets[:, 1:] - 1e-5).all())
        self.assertTrue(((line[:, 1:] < budgets[:, 1:] + 1e-5).sum(1) >= 2).all())
        self.assertAlmostEqual(float(slope[0]), 0.05, places=6)

    def test_refuses_what_is_no_finished_collection(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            done = self.run_script(folder, folder / "p.safetensors")
            self.assertIn("names a folder that `tandem fluxion collect` wrote", done.stderr)
            write_collection(folder, finished=False)
            done = self.run_script(folder, folder / "p.safetensors")
            self.assertIn("is not finished", done.stderr)
            write_collection(folder)
            (folder / "task-1024-0002.safetensors").unlink()
            done = self.run_script(folder, folder / "p.safetensors")
            self.assertEqual(done.returncode, 1)
            self.assertIn("train.py: ", done.stderr)
            self.assertIn("task-1024-0002.safetensors is missing", done.stderr)
            self.assertNotIn("Traceback", done.stderr)

    def test_scores(self):
        truth = np.array([True, False, True, False])
        self.assertEqual(train.area_under_curve(np.array([4.0, 3.0, 2.0, 1.0]), truth), 0.75)
        self.assertEqual(train.area_under_curve(np.ones(4), truth), 0.5)
        self.assertIsNone(train.area_under_curve(np.ones(4), np.ones(4, bool)))
        scores = train.regression(np.array([1.0, 2.0, 4.0]), np.array([1.0, 2.0, 3.0]))
        self.assertAlmostEqual(scores["r2"], 0.5)
        self.assertAlmostEqual(scores["mae"], 1 / 3)


if __name__ == "__main__":
    unittest.main()
