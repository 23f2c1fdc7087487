"""Tests of methods/fluxion/train.py; skipped, saying so, where PyTorch or numpy are not installed.

  python3 tests/methods/fluxion/train_test.py
"""
import contextlib
import importlib.util
import io
import json
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


RULES = ("fluxion", "output", "score")


def write_collection(folder, finished=True, prompts="RULER, embedded", seed=1, labels=7, sinks=64, decode_steps=1,
                     weights="fedcba9800000012", task="task", config=None):
    """Ten prompts: what `tandem fluxion collect` writes, in small. Streaming follows from a feature, by another limit for
    each rule; budgets from a feature and from the budget under the anchor of the same tau and rule; at the first tau nothing
    is needed."""
    r = np.random.default_rng(labels)
    shards = []
    for i in range(10):
        n = 256
        features = r.normal(size=(n, 41)).astype(np.float32)
        anchor = r.random((n, 2, 3, 4)).astype(np.float32)
        streaming = np.stack([features[:, 0] > limit for limit in (0, 0.5, 1)], 1)
        budgets = np.clip(0.3 + 0.05 * features[:, 1:2] + 0.3 * anchor[:, 1, :, 0], 0, 1)
        budgets = np.where(streaming, 0, budgets)[:, None, :, None].repeat(5, 3)
        tensors = {"features": features, "anchor_budgets": anchor, "budgets": np.concatenate([0 * budgets, budgets], 1).astype(np.float32),
                   "slopes": np.broadcast_to(np.float32([0.1, 0.2, 0.3]), (n, 2, 3)), "steps": np.zeros(n, np.int32)}
        file = folder / f"{task}-{1024 * (1 + i % 2)}-{i // 2:04}.safetensors"
        train.write_tensors(file, {**tensors, "streaming": np.stack([streaming, streaming], 1).astype(np.int32)})
        shards.append({"file": file.name, "tokens": 1000, "rows": n, "hash": ""})
    names = [f"features_{i}" for i in range(35)] + [f"anchor_budget_{n}" for n in (16, 32, 64, 128)] + ["features_39", "features_40"]
    plan = {"model": "made up", "weights_hash": weights, "prompts": prompts, "layers": 1, "q_heads": 64, "kv_heads": 1,
            "head_dim": 8, "sinks": sinks, "window": 256, "decode_steps": decode_steps, "steps": 1, "taus": [0.5, 0.1], "mass": 0.95, "seed": seed,
            "isa": "any", "features": names, "policies": list(RULES), "blocks": [1, 16, 32, 64, 128]}
    if config:
        plan["config_hash"] = config
    manifest = {"schema": "tandem-fluxion-2", "plan": plan, "shards": shards, "finished": finished}
    (folder / "manifest.json").write_text(json.dumps(manifest))


@unittest.skipIf(MISSING, f"not installed: {', '.join(MISSING)}")
class TrainTest(unittest.TestCase):
    def run_script(self, data, out, *more):
        """What it ends with, None where all is well; in this process, since loading PyTorch takes longer than the rest."""
        data = data if isinstance(data, list) else [data]
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                train.main(["--data", *map(str, data), "--out", str(out), "--epochs", "60", "--batch", "128", "--hidden", "16", *more])
            except SystemExit as end:
                return end.code
        return None

    def judge(self, data, predictor, *more):
        try:
            train.main(["--data", str(data), "--judge", str(predictor), *more])
        except SystemExit as end:
            return end.code
        return None

    def learn(self, data, out, *more):
        self.assertIsNone(self.run_script(data, out, *more))
        return json.loads(out.with_suffix(".json").read_text()), train.read_tensors(out)

    def test_learns_what_can_be_known_and_gives_the_same_file_again(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_collection(folder)
            outs = [folder / "a.safetensors", folder / "b.safetensors"]
            for out in outs:
                report, tensors = self.learn(folder, out, "--vector", str(folder / "v.json"))
            self.assertEqual(outs[0].read_bytes(), outs[1].read_bytes())
            self.assertEqual(report["parameters"], 41 * 16 + 16 + 16 * 3 + 3)
            # Whole prompts: had rows been drawn, all ten would be on both sides.
            self.assertEqual((report["held_out"]["prompts"], report["training"]["prompts"]), (2, 8))
            self.assertEqual(tensors["model"].tolist(), [1, 64, 1, 8, 64, 256, 0])
            self.assertEqual(tensors["weights"].view(np.uint32).tolist(), [0xfedcba98, 0x12])
            np.testing.assert_allclose(tensors["limits"], [0.1, 0.95], rtol=1e-6)
            # The file's numbers are those of plain loops over it.
            vector = json.loads((folder / "v.json").read_text())
            for row, expected in zip(vector["features"], vector["outputs"], strict=True):
                x = np.clip((np.array(row) - tensors["feature.mean"]) / tensors["feature.std"], -10, 10)
                x = np.maximum(tensors["trunk.0.weight"].astype(float) @ x + tensors["trunk.0.bias"], 0)
                np.testing.assert_allclose(tensors["heads.weight"].astype(float) @ x + tensors["heads.bias"], expected, rtol=1e-3, atol=1e-3)
            # The normalisation knows nothing of what is held out.
            data = train.Data([folder], "fluxion")
            known = ~np.isin(data.prompt, list(train.held_out(data.order, 0.2)))
            np.testing.assert_allclose(tensors["feature.mean"], data.features[known].mean(0), rtol=1e-4, atol=1e-5)

    def test_each_rule_has_its_own_labels_and_budgets_under_the_anchor(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_collection(folder)
            for i, rule in enumerate(RULES):
                report, tensors = self.learn(folder, folder / "p.safetensors", "--policy", rule, "--loss", "measured")
                held_out = report["held_out"]
                self.assertEqual(tensors["model"][6], i)
                self.assertAlmostEqual(held_out["streaming"]["share"], (0.5, 0.31, 0.16)[i], delta=0.08)
                self.assertGreater(held_out["streaming"]["auc"], 0.95)
                # Most of the budget's variance is in the budgets under the anchor, of this tau and rule alone.
                self.assertGreater(held_out["retrieval_heads"]["budget"]["r2"], 0.6)
                self.assertAlmostEqual(held_out["retrieval_heads"]["slope"]["mean"], 0.1 * (i + 1), places=5)
            report, tensors = self.learn(folder, folder / "p.safetensors", "--tau", "0.5")
            self.assertAlmostEqual(float(tensors["limits"][0]), 0.5)
            self.assertEqual(report["held_out"]["blocks"]["32"]["predicted"]["mean"], 0)
            self.assertIn("has labels for 0.5, 0.1", self.run_script(folder, folder / "p.safetensors", "--tau", "0.3"))

    def test_losses_differ_in_what_they_ask(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_collection(folder)
            short, missed = {}, {}
            for label, more in {"half": ["--quantile", "0.5"], "most": ["--quantile", "0.95"], "easy": ["--miss", "0.05"],
                                "measured": ["--loss", "measured"]}.items():
                report, _ = self.learn(folder, folder / f"{label}.safetensors", *more)
                short[label] = report["held_out"]["blocks"]["32"]["too_little"]
                missed[label] = report["held_out"]["streaming"]["called_streaming_but_is_not"]
            self.assertLess(short["most"], 0.25)
            self.assertGreater(short["half"], short["most"] + 0.1)
            self.assertGreater(missed["easy"], missed["most"] + 0.02)

    def test_prompts_are_known_by_where_they_come_from(self):
        with tempfile.TemporaryDirectory() as name:
            a, b, c, out = Path(name) / "a", Path(name) / "b", Path(name) / "c", Path(name) / "p.safetensors"
            for folder in (a, b, c):
                folder.mkdir()
            write_collection(a)
            write_collection(b, seed=2, labels=8)
            self.assertIn("have prompts in common", self.run_script([a, a], out))
            report, _ = self.learn([a, b], out)
            self.assertEqual(report["held_out"]["prompts"], 4)
            self.assertEqual([collection["seed"] for collection in report["data"]["folders"]], [1, 2])
            # A predictor on data that it never saw.
            write_collection(c, seed=3, labels=9)
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                train.main(["--data", str(c), "--judge", str(out), "--report", str(c / "judged.json")])
            judged = json.loads((c / "judged.json").read_text())
            self.assertEqual((judged["judged"]["prompts"], judged["folders"][0]["seed"], judged["policy"]), (10, 3, "fluxion"))
            self.assertGreater(judged["judged"]["streaming"]["auc"], 0.95)
            self.assertEqual({n: part["prompts"] for n, part in judged["judged_by_length"].items()}, {"1024": 5, "2048": 5})
            self.assertEqual(judged["judged_by_prompts"]["RULER, embedded"], judged["judged"])
            self.assertIn("10 prompts, 2560 rows\nstreaming: accuracy 0.", said.getvalue())
            self.assertIn("--out changes nothing with --judge", self.run_script(c, out, "--judge", str(out)))
            self.assertIn("--tau changes nothing", self.judge(c, out, "--tau", "0.05"))
            self.assertIn("is no predictor", self.judge(c, c / "judged.json"))
            write_collection(c, seed=3, weights="fedcba9800000013")
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                self.assertNotIn("was trained for the weights", said.getvalue())
                self.assertIsNone(self.judge(c, out))
            self.assertIn("was trained for the weights fedcba9800000012, --data is of fedcba9800000013", said.getvalue())
            write_collection(c, sinks=32)
            self.assertIn("is for another model or placement", self.judge(c, out))
            # Other texts are other prompts, of the tasks that they are in.
            essays = "RULER, embedded; essays: a; b.txt, 0123456789abcdef"
            for task, said in (("niah_single_1", "have prompts in common"), ("niah_single_2", None), ("qa_1", "have prompts in common")):
                for folder, prompts in ((a, "RULER, embedded"), (b, essays)):
                    for file in folder.iterdir():
                        file.unlink()
                    write_collection(folder, prompts=prompts, task=task)
                found = self.run_script([a, b], out)
                self.assertTrue(said in found if said else found is None, found)
            # A text's windows are the same whatever the seed.
            write_collection(a, prompts="book.txt, 12")
            write_collection(b, prompts="book.txt, 12", seed=2)
            write_collection(c, prompts="other.txt, 34")
            self.assertIn("have prompts in common", self.run_script([a, b], out))
            data = train.Data([a, c], "fluxion")
            self.assertEqual({data.prompts[i].rsplit("-", 1)[1] for i in train.held_out(data.order, 0.2)}, {"0004"})  # their ends

    def test_a_text_and_tasks_teach_together(self):
        with tempfile.TemporaryDirectory() as name:
            tasks, text, out = Path(name) / "a", Path(name) / "b", Path(name) / "p.safetensors"
            for folder in (tasks, text):
                folder.mkdir()
            write_collection(tasks)
            write_collection(text, prompts="book.txt, 12", labels=8, decode_steps=128)
            report, _ = self.learn([tasks, text], out)
            self.assertEqual([c["decode_steps"] for c in report["data"]["folders"]], [1, 128])
            apart = report["held_out_by_prompts"]
            self.assertEqual(set(apart), {"RULER, embedded", "book.txt, 12"})
            self.assertEqual(sum(part["rows"] for part in apart.values()), report["held_out"]["rows"])
            hits = sum(part["rows"] * part["streaming"]["accuracy"] for part in apart.values())
            self.assertAlmostEqual(hits / report["held_out"]["rows"], report["held_out"]["streaming"]["accuracy"])
            write_collection(text, prompts="book.txt, 12", sinks=32)
            self.assertIn("'sinks' is not that of the other folders", self.run_script([tasks, text], out))

    def test_folders_of_older_programs_do_not_say_which_config_they_are_of(self):
        with tempfile.TemporaryDirectory() as name:
            folders = [Path(name) / which for which in ("older", "newer", "another")]
            for seed, (folder, config) in enumerate(zip(folders, (None, "c1", "c2"))):
                folder.mkdir()
                write_collection(folder, seed=seed, config=config)
            older, newer, another = folders
            for order in ([older, newer], [newer, older]):
                self.assertEqual(len(train.Data(order, "fluxion").prompts), 20)
            for order in ([older, newer, another], [newer, another]):
                self.assertIn("'config_hash' is not that of the other folders", self.run_script(order, Path(name) / "p.safetensors"))

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
            said = lambda: self.run_script(folder, folder / "p.safetensors")
            self.assertIn("names a folder that `tandem fluxion collect` wrote", said())
            self.assertIn("make it first", self.run_script(folder, folder / "nowhere" / "p.safetensors"))
            write_collection(folder, finished=False)
            self.assertIn("is not finished", said())
            write_collection(folder)
            shard = folder / "task-1024-0002.safetensors"
            whole = shard.read_bytes()
            for damage in (b"", whole[:100], whole[:-1], whole + b"x"):
                shard.write_bytes(damage)
                self.assertIn("task-1024-0002.safetensors is damaged", said())
            shard.unlink()
            self.assertIn("task-1024-0002.safetensors is missing", said())
            self.assertTrue(said().startswith("train.py: "))

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
