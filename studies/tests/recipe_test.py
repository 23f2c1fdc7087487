"""Tests of studies/recipe. What needs torch or sentencepiece says so and is skipped without them; the rest needs Python alone.

  python3 studies/tests/recipe_test.py
"""
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from recipe_needs import ROOT, needs_torch  # first: it says where the others are

import text
from tasks import FAMILIES, Tasks

TINY = {"model": {"hidden": 32, "layers": 2, "q_heads": 4, "kv_heads": 1, "head_dim": 64, "intermediate": 48,
                  "rope_theta": 10000.0, "max_positions": 512},
        "vocabulary": 400, "lr": 0.003, "seed": 3, "save_minutes": 9, "log_every": 2, "shard_mb": 0.1, "most_mb": 1,
        "guided": {"copies": {"layer": 1, "kv_head": 0}, "lists": {"layer": 0, "kv_head": 0}},
        "stages": [{"steps": 6, "T": 128, "B": 2, "pmax": 256, "rep": 0.5, "lm": 0, "dense": 1, "hard": 0,
                    "families": [1, 0, 0, 0, 0]},
                   {"steps": 6, "T": 256, "B": 2, "pmax": 512, "rep": 0, "lm": 0.1, "dense": 1, "hard": 1, "guide": 0.3,
                    "families": [5, 2, 1, 1, 2]}]}


class TextTest(unittest.TestCase):
    def test_sentences_from_all_kinds_of_files(self):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "in"
            source.mkdir()
            (source / "a.txt").write_text("It cost 1 @,@ 000 coins in all. Short. It cost 1 @,@ 000 coins in all.\n")
            (source / "b.json").write_text(json.dumps({"text": "An essay sentence of some length. \u4f60\u597d"}))
            (source / "c.jsonl").write_text(json.dumps({"meeting": [{"content": "Somebody says this at a meeting."}]}) + "\n")
            out = Path(folder) / "s.txt"
            subprocess.run([sys.executable, ROOT / "studies/recipe/text.py", "--from", source, "--out", out], check=True,
                           stdout=subprocess.DEVNULL)
            self.assertEqual(text.load(str(out)), ["It cost 1,000 coins in all.", "An essay sentence of some length.",
                                                   "Somebody says this at a meeting."])
            self.assertEqual(json.loads(Path(f"{out}.sources.json").read_text()), {"a.txt": 1, "b.json": 1, "c.jsonl": 1})


@needs_torch
class TrainingTest(unittest.TestCase):
    def train(self, folder, stop_at=None, init=None):
        """Trains in `folder`, from the export `init`; SIGTERM when the log has reached step `stop_at`."""
        config = Path(folder).parent / "config.json"
        config.write_text(json.dumps(TINY))
        command = [sys.executable, ROOT / "studies/recipe/train.py", "--config", config, "--out", folder, "--workers", "2"]
        command += ["--init", init] if init else []
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}) as process:
            for line in process.stdout:
                step = re.search(r" step (\d+) ", line)
                if stop_at is not None and step and int(step.group(1)) >= stop_at:
                    process.terminate()
                    stop_at = None
                last = line
        self.assertEqual(process.returncode, 0)
        return last.strip()

    def test_a_plan_that_lacks_something_is_told_before_training(self):
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder) / "plan.json"
            for change, words in ((lambda c: c.pop("shard_mb"), "the plan has no 'shard_mb'"),
                                  (lambda c: c["model"].pop("layers"), "'model' has no 'layers'"),
                                  (lambda c: c["stages"][1].pop("pmax"), "stage 2 has no 'pmax'"),
                                  (lambda c: c["stages"][1].update(uuid=0.4), "stage 2 has 'uuid', which no stage has"),
                                  (lambda c: c["stages"][1].pop("steps"), "stage 2 has neither 'minutes' nor 'steps'"),
                                  (lambda c: c["stages"][0]["families"].pop(), "'families' of stage 1 is [1, 0, 0, 0]: give"),
                                  (lambda c: c.update(hold=1), "'hold' is 1: give the share of the plan"),
                                  (lambda c: c.update(guided={"words": {}}), "for one or more of copies, lists"),
                                  (lambda c: c["guided"]["lists"].update(layer=2), "'layer' of 'lists' in 'guided' is 2: the model "
                                   "has 0 to 1"),
                                  (lambda c: c.pop("guided"), "does not say which head to guide"),
                                  (lambda c: c.update(stages=[]), "'stages' is no list of at least one stage")):
                plan = json.loads(json.dumps(TINY))
                change(plan)
                config.write_text(json.dumps(plan))
                done = subprocess.run([sys.executable, ROOT / "studies/recipe/train.py", "--config", config, "--out", folder],
                                      capture_output=True, text=True)
                self.assertEqual(done.returncode, 1)
                self.assertIn(words, done.stderr)
                self.assertNotIn("Traceback", done.stderr)

    def test_it_saves_when_asked_to_and_never_what_is_no_number(self):
        import torch
        with tempfile.TemporaryDirectory() as folder:
            out, hot = Path(folder) / "run", Path(folder) / "hot.json"
            out.mkdir()
            (out / "save-now").touch()
            self.assertIn("stopped", self.train(out, 2))
            self.assertFalse((out / "save-now").exists())
            self.assertEqual(torch.load(out / "last.pt.old", weights_only=True)["plan"]["step"], 1)
            before = (out / "last.pt").read_bytes()
            hot.write_text(json.dumps(TINY | {"lr": 1e30}))
            done = subprocess.run([sys.executable, ROOT / "studies/recipe/train.py", "--config", hot, "--out", out],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 1)
            self.assertIn("is not finite at step", done.stderr)
            self.assertNotIn("Traceback", done.stderr)
            self.assertEqual((out / "last.pt").read_bytes(), before)

    def patched(self, folder, patch, *options):
        """Trains four steps in `folder`/run after some lines of Python; how that ended."""
        program = str(ROOT / "studies/recipe/train.py")
        words = (f"import runpy, sys, torch\n{patch}\n"
                 f"sys.argv[0] = {program!r}\nsys.path.insert(0, {str(ROOT / 'studies/recipe')!r})\n"
                 f"runpy.run_path({program!r}, run_name='__main__')")
        plan = Path(folder) / "plan.json"
        plan.write_text(json.dumps(TINY | {"stages": [TINY["stages"][0] | {"steps": 4}]}))
        return subprocess.run([sys.executable, "-c", words, "--config", plan, "--out", Path(folder) / "run", "--workers", "1",
                               *options], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})

    def test_what_does_not_compile_is_trained_without_and_the_log_says_why(self):
        refuses = "def refuse(*_):\n    raise RuntimeError('no kernel for this shape')\ntorch.compile = lambda _: refuse"
        with tempfile.TemporaryDirectory() as folder:
            done = self.patched(folder, refuses, "--compile")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("torch.compile failed, goes on without it", done.stdout)
            self.assertEqual(done.stdout.splitlines()[-1], "finished")
            self.assertRegex(done.stderr, r"Traceback(.|\n)*no kernel for this shape")

    def test_a_gradient_that_is_no_number_is_left_out_and_told(self):
        spoils = ("clip, calls = torch.nn.utils.clip_grad_norm_, []\n"
                  "def spoil(parameters, most):\n"
                  "    parameters = list(parameters)\n"
                  "    calls.append(1)\n"
                  "    if len(calls) == 3:\n        parameters[2].grad.view(-1)[0] = float('nan')\n"
                  "    return clip(parameters, most)\n"
                  "torch.nn.utils.clip_grad_norm_ = spoil")
        with tempfile.TemporaryDirectory() as folder:
            done = self.patched(folder, spoils)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("1 of 2 steps had gradients that are no numbers, and left them out", done.stdout)
            self.assertEqual(done.stdout.splitlines()[-1], "finished")
            self.assertEqual(len((Path(folder) / "run/log.jsonl").read_text().splitlines()), 2)

    def test_stopped_twice_it_makes_the_same_model(self):
        with tempfile.TemporaryDirectory() as folder:
            whole, parts = Path(folder) / "whole", Path(folder) / "parts"
            self.assertEqual(self.train(whole), "finished")
            self.assertIn("stopped", self.train(parts, 2))
            half = shutil.copytree(parts / "export", Path(folder) / "half")
            self.assertIn("stopped", self.train(parts, 8))
            self.assertEqual(self.train(parts), "finished")
            files = sorted(f.name for f in (whole / "export").iterdir())
            self.assertGreater(sum(f.endswith(".safetensors") for f in files), 1)
            for name in files:
                if name != "training.json":  # it holds seconds
                    self.assertEqual((whole / "export" / name).read_bytes(), (parts / "export" / name).read_bytes(), name)
                self.assertLess((whole / "export" / name).stat().st_size, 1e5)

            self.check_older(parts)
            self.check_start(whole / "export", Path(folder) / "anew", first_step=2)  # its plan was finished
            self.check_start(half, Path(folder) / "on", first_step=4)

            from export import read_export
            from packing import Packer
            from tokenizer import Encoder
            model, encoder = read_export(whole / "export"), Encoder(whole / "export/tokenizer.model")
            self.check_words(encoder)
            self.check_rows(Packer(encoder, [], TINY["stages"][1]))
            strings = TINY["stages"][1] | {"rep": 1, "strings": 1}
            self.check_strings(Packer(encoder, [], strings), least=50)
            self.check_strings(Packer(encoder, [], strings | {"alike": 1}), least=20)
            self.check_few(Packer(encoder, [], strings | {"few": 1}))
            self.check_sources(encoder)
            self.check_unlike()
            self.check_grown(model, Path(folder) / "grown")

    def check_older(self, folder):
        """A checkpoint of when there was one optimizer for everything."""
        import torch
        saved = torch.load(folder / "last.pt", weights_only=True)
        saved["optimizer"] = saved.pop("optimizers")[0]
        torch.save(saved, folder / "last.pt")
        done = subprocess.run([sys.executable, ROOT / "studies/recipe/train.py", "--config", folder.parent / "config.json", "--out",
                               folder], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("before training used Muon: choose another --out", done.stderr)

    def check_start(self, export, folder, first_step):
        self.assertEqual(self.train(folder, init=export), "finished")
        steps = [json.loads(line)["step"] for line in (folder / "log.jsonl").read_text().splitlines()]
        self.assertEqual(steps[-1], 12)
        self.assertTrue(steps[0] == 2 if first_step == 2 else steps[0] >= first_step, steps)

    def check_words(self, encoder):
        r = random.Random(2)
        for family in FAMILIES:
            sample = Tasks().make(family, r, 800, 3)
            for part in (sample.context + "\n", "two  spaces ", *(q for q, _ in sample.questions)):
                self.assertEqual(encoder.encode(part), encoder.processor.encode(part))

    def check_rows(self, packer):
        import numpy as np
        from packing import ANSWER, CHOICE, CONTEXT, CONTEXT_EVERY, SKIP, Packer
        from tokenizer import EOS
        r, spoken = random.Random(4), 0
        for _ in range(40):
            row = packer.row(r)
            self.assertEqual((len(row.ids), len(row.kinds), len(row.answers)), (257, 257, 257))
            self.assertEqual([k >= ANSWER for k in row.kinds], [a > 0 for a in row.answers])
            spoken += any(row.answers)
        self.assertGreater(spoken, 20)
        ids, kinds = packer._answer("abcde 1234567, 89")
        words = [packer.encoder.encode(" " + word) for word in ("abcde", "1234567,", "89")]
        self.assertEqual(ids, [*words[0], *words[1], *words[2], EOS])
        self.assertEqual([i for i, kind in enumerate(kinds) if kind == CHOICE],
                         [at + i for at in (0, len(words[0]), len(words[0]) + len(words[1])) for i in (0, 1)])
        uuid = "ab1c2-3e-4d5-cd-7f"
        heavy, pieces = Packer(packer.encoder, [], packer.stage | {"letters": 1}), packer.encoder.encode(" " + uuid)
        for which, letters in ((packer, ANSWER), (heavy, CHOICE)):
            kinds = which._answer(f"7 {uuid}")[1][-1 - len(pieces):-1]
            for at, (token, kind) in enumerate(zip(pieces, kinds)):
                letter = packer.encoder.processor.id_to_piece(token).lstrip("\u2581").isalpha()
                self.assertEqual(kind, CHOICE if at < 2 else letters if letter else ANSWER, (at, kinds))
        one, again = (packer.batch(random.Random("s-1")) for _ in range(2))
        self.assertTrue((one.ids == again.ids).all() and (one.positions == again.positions).all())

        def without_padding(row):
            end = len(row.ids)
            while end > 0 and row.ids[end - 1] == EOS and row.kinds[end - 1] == SKIP:
                end -= 1
            self.assertGreater(end, 0, "a row of nothing")
            return row.kinds[:end]

        contexts = np.concatenate([without_padding(packer.row(r)) for _ in range(40)])
        self.assertAlmostEqual((contexts == CONTEXT).sum() / (contexts < ANSWER).sum(), 1 / CONTEXT_EVERY, delta=0.01)

    def check_strings(self, packer, least):
        """What is a target stood in the row before, behind the same tokens."""
        r, targets = random.Random(9), 0
        for _ in range(20):
            row = packer.row(r)
            ids = row.ids
            self.assertEqual((len(ids), len(row.kinds), sum(row.answers)), (257, 257, 0))
            for i in (i for i, kind in enumerate(row.kinds) if kind):
                before = [ids[j - 2:j + 1] for j in range(2, i)]
                self.assertIn(ids[i - 2:i + 1], before)
                targets += 1
        self.assertGreater(targets, 20 * least)

    def check_few(self, packer):
        """Rows of few tokens, which are strings all the same: of any kind, of UUIDs', or of their letters alone."""
        self.check_strings(packer, least=20)
        piece, r, rows = packer.encoder.processor.id_to_piece, random.Random(3), []
        for _ in range(60):
            rows.append({piece(token) for token in packer.row(r).ids[1:]})
        hexadecimal, letters = set("0123456789abcdef"), set("abcdef")
        self.assertLess(max(len(row) for row in rows), 72)
        kinds = [1 if set("".join(row)) <= letters else 2 if set("".join(row)) <= hexadecimal else 0 for row in rows]
        self.assertGreater(min(kinds.count(kind) for kind in range(3)), 9, kinds)

    def check_sources(self, encoder):
        """A token that is said stood at each place that is told, behind the same tokens, before it is said; no plan without
        "guide" is another for it."""
        import numpy as np
        from packing import ANSWER, CHOICE, SKIP, Packer
        from plan import GUIDES
        from copy_sources import GUIDED, SOURCES, Answers, Told
        from tokenizer import EOS
        ends = {EOS, encoder.encode(",")[-1]}
        stage = TINY["stages"][1] | {"T": 700, "lm": 0, "families": [1, 0, 0, 0, 1], "hard": 1, "several": 0.5}
        for rep, least in ((0, ANSWER), (1, SKIP + 1)):
            stage |= {"rep": rep, "strings": 1}
            batch = Packer(encoder, [], stage | {"guide": 0.3, "B": 8}).batch(random.Random(8))
            plain = Packer(encoder, [], stage | {"guide": 0, "B": 1}).batch(random.Random(8))
            self.assertTrue((plain.ids[0] == batch.ids[0]).all())
            self.assertEqual(plain.sources.shape, (0, 3 + SOURCES))
            self.assertGreater(len(batch.sources), 100)
            self.assertEqual(batch.sources.tolist(), sorted(batch.sources.tolist()))
            self.assertLessEqual(np.bincount(batch.sources[:, 1]).max(), GUIDED)
            several, followed, ended = 0, 0, 0
            for which, row, place, *before in batch.sources.tolist():
                ids, told = batch.ids[row], [b for b in before if b >= 0]
                self.assertEqual(GUIDES[which], "copies")
                self.assertGreaterEqual(batch.kinds[row, place + 1], least)
                self.assertEqual(before, told + [-1] * (SOURCES - len(told)))
                self.assertTrue(told and max(told) <= place)
                several += len(told) > 1
                if ids[place + 1] in ends and not rep:  # behind a value other signs stand in contexts
                    self.assertTrue(all(ids[b - 1] == ids[place] for b in told))
                    ended += 1
                else:
                    self.assertEqual({int(ids[b]) for b in told}, {int(ids[place + 1])})
                followed += all(ids[b - 1] == ids[place] for b in told)
            self.assertGreater(followed, 0.8 * len(batch.sources))  # not a value's first token
            self.assertTrue(several if rep else ended)
        batch = Packer(encoder, [], stage | {"guide": 0.3, "rep": 0, "families": [0, 0, 1, 0, 0], "B": 16}).batch(random.Random(8))
        piece, words = encoder.processor.id_to_piece, 0
        for which, row, place, *before in batch.sources.tolist():
            ids, told = batch.ids[row].tolist(), [b for b in before if b >= 0]
            if GUIDES[which] == "copies":
                self.assertEqual({ids[b] for b in told}, {ids[place + 1]})
            else:
                end = next(i for i in range(place + 2, len(ids)) if ids[i] == EOS or piece(ids[i]).startswith("\u2581"))
                word = ids[place + 1:end]
                self.assertEqual(batch.kinds[row, place + 1], CHOICE)
                for b in told:
                    self.assertEqual(ids[b + 1 - len(word):b + 1], word)
                    self.assertFalse(piece(ids[b + 1])[0].isalpha(), "a word that goes on")
                words += 1
        self.assertGreater(words, 20)
        answers, told = Answers(encoder), Told()
        word, longer, comma = min(answers.starts), min(answers.goes_on), answers.comma
        answers.tell(told, "cwe", [word, comma, word, longer, comma, word, comma], 100, [word, EOS], 200)
        self.assertEqual(told.spans[0], ("lists", 200, [100, 105], 1))
        told = Told()
        for places in (0, SOURCES + 1, SOURCES):
            told.tell("copies", 100, list(range(places)), 1)
        self.assertEqual(told.spans, [("copies", 100, list(range(SOURCES)), 1)])

    def check_unlike(self):
        """After so many of its tokens a string is no other's beginning, and not before."""
        from packing import _unlike_after
        r = random.Random(5)
        for _ in range(50):
            strings = [r.choices(range(3), k=r.randrange(1, 7)) for _ in range(r.randrange(1, 9))]
            strings.append(strings[0])
            for string, tokens in _unlike_after(strings).items():
                def alike(count):
                    return [other for other in map(tuple, strings) if other != string and other[:count] == string[:count]]
                self.assertTrue(tokens == len(string) or not alike(tokens), (string, tokens, strings))
                self.assertTrue(alike(tokens - 1) or tokens == 1, (string, tokens, strings))

    def check_grown(self, model, out):
        """Layers that are put in change nothing, nor does what a grown model exports."""
        import torch
        from model import Model, Shape
        shape = Shape(**model.shape.to_dict() | {"layers": 4, "max_positions": 1024})
        grown, ids = Model(shape), torch.randint(260, 400, (2, 30))
        grown.grow_from(model, [0, -1, 1, -1])
        at = torch.arange(30).expand(2, 30)
        with torch.no_grad():
            self.assertTrue(torch.equal(grown(ids, at), model(ids, at)))
        with self.assertRaisesRegex(SystemExit, "grow and layers"):
            grown.grow_from(model, [0, 1])
        with self.assertRaisesRegex(SystemExit, "has 2 layers"):
            grown.grow_from(model, [0, -1, 1, 2])
        with self.assertRaisesRegex(SystemExit, "has 4 layers"):
            Model(shape).grow_from(grown, [0, -1, 1, -1])
        with self.assertRaisesRegex(SystemExit, "hidden"):
            Model(Shape(**model.shape.to_dict() | {"hidden": 48})).grow_from(model, [0, 1])


@needs_torch
class AnswerTest(unittest.TestCase):
    def test_answers_of_a_model_that_looks_back_are_the_plain_greedy_ones(self):
        """models/tiny attends far back: a cache that still had the rest of the reference would give itself away."""
        import torch
        from evaluate import answer
        from export import read_export
        from ruler_tasks import make_test
        from tokenizer import BOS, EOS, Encoder
        folder = ROOT / "models" / "tiny"
        model, encoder = read_export(folder), Encoder(folder / "tokenizer.model")
        for task in ("niah_single_1", "niah_multivalue", "vt"):
            test = make_test(task, 256, 3, 42, lambda s: len(encoder.encode(s)) + 1, 48)
            prompt = [BOS] + encoder.encode(test.prompt)
            greedy, ids = [], list(prompt)
            with torch.no_grad():
                for _ in range(16):
                    x = torch.tensor([ids])
                    greedy.append(int(model.logits(model(x, torch.arange(len(ids))[None])[0, -1]).argmax()))
                    ids.append(greedy[-1])
            end = greedy.index(EOS) + 1 if EOS in greedy else len(greedy)
            for wrong in (0, 1, 2):  # the reference differs from here on, and says a value over and over
                reference = greedy[:wrong] + [(greedy[wrong] + 1) % 1000] + encoder.encode(" 4711" * 4)
                self.assertEqual(answer(model, prompt, reference, 16, "cpu"), greedy[:end], (task, wrong))

    def test_an_average_is_of_models_of_one_kind(self):
        import torch
        from export import read_export, write_export
        tiny = ROOT / "models" / "tiny"
        with tempfile.TemporaryDirectory() as folder:
            other, out = Path(folder) / "other", Path(folder) / "out"
            model = read_export(tiny)
            with torch.no_grad():
                for tensor in model.state_dict().values():
                    tensor += 1
            write_export(model, tiny / "tokenizer.model", other, {"plan": {"step": 7}}, 12, 25)

            def average(*models):
                return subprocess.run([sys.executable, ROOT / "studies/recipe/average.py", "--models", *models, "--out", out],
                                      capture_output=True, text=True)
            done = average(tiny, other)
            self.assertEqual(done.returncode, 0, done.stderr)
            ones, twos, means = (read_export(f).state_dict() for f in (tiny, other, out))
            for name, mean in means.items():
                self.assertTrue(torch.equal(mean, ((ones[name] + twos[name]) / 2).bfloat16().float()), name)
            self.assertEqual(json.loads((out / "training.json").read_text())["average_of"][1]["plan"]["step"], 7)
            for models, words in (((tiny,), "two or more"), ((tiny, ROOT / "models/seed"), "another shape or tokenizer")):
                refused = average(*models)
                self.assertEqual(refused.returncode, 1)
                self.assertIn(words, refused.stderr)

    def test_mistakes_are_counted_by_kind_of_token(self):
        from mistakes import kind_of
        from tokenizer import EOS
        self.assertEqual([kind_of(piece, 300) for piece in ("7", "a", "bc", "\u2581c", "\u2581", "-")],
                         ["digit", "letter", "letters", "letter", "sign", "sign"])
        self.assertEqual(kind_of("</s>", EOS), "end")
        done = subprocess.run([sys.executable, ROOT / "studies/recipe/mistakes.py", "--model", ROOT / "models/tiny", "--task",
                               "niah_multikey_3", "--length", "256", "--samples", "4"], capture_output=True, text=True, check=True)
        right = int(re.search(r"at 256 tokens: (\d+) of 4", done.stdout).group(1))
        rows = {kind: [int(seen), int(wrong), int(first)] for kind, seen, wrong, first in
                re.findall(r"^(\w+) +(\d+) +(\d+) +[\d.]+ +(\d+)$", done.stdout, re.M)}
        self.assertEqual(rows["end"][0], 4)
        self.assertGreaterEqual(rows["sign"][0], 16, done.stdout)  # four dashes in each
        self.assertEqual(sum(first for *_, first in rows.values()), 4 - right)
        self.assertEqual(len(re.findall(r"^  sample", done.stdout, re.M)), 4 - right)
        self.assertLess(right, 4, done.stdout)  # the tiny one knows no UUIDs


if __name__ == "__main__":
    unittest.main()
