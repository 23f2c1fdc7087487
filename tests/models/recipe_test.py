"""Tests of models/recipe. What needs torch or sentencepiece says so and is skipped without them; the rest needs Python alone.

  python3 tests/models/recipe_test.py
"""
import collections
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

import ruler_tasks
import text
from tasks import FAMILIES, Tasks

TINY = {"model": {"hidden": 32, "layers": 2, "q_heads": 4, "kv_heads": 1, "head_dim": 64, "intermediate": 48,
                  "rope_theta": 10000.0, "max_positions": 512},
        "vocabulary": 400, "lr": 0.003, "seed": 3, "save_minutes": 9, "log_every": 2, "shard_mb": 0.1, "most_mb": 1,
        "stages": [{"steps": 6, "T": 128, "B": 2, "pmax": 256, "rep": 0.5, "lm": 0, "dense": 1, "hard": 0,
                    "families": [1, 0, 0, 0, 0]},
                   {"steps": 6, "T": 256, "B": 2, "pmax": 512, "rep": 0, "lm": 0.1, "dense": 1, "hard": 1,
                    "families": [5, 2, 1, 1, 2]}]}


class TaskTest(unittest.TestCase):
    """Every answer follows from its context."""

    def samples(self, family, characters=3000, questions=4):
        tasks, r = Tasks(), random.Random(family)
        return [tasks.make(family, r, characters, questions) for _ in range(30)]

    def test_contexts_have_about_the_length_asked_for(self):
        for family in FAMILIES:
            for sample in self.samples(family, 8000):
                self.assertGreater(len(sample.context), 5000, family)
                self.assertLess(len(sample.context), 12000, family)

    def test_niah_values_stand_behind_their_keys_in_order(self):
        needle = re.compile(r"The secret (\w+) for (\S+) is (\S+)\.")
        asked = collections.Counter()
        for sample in self.samples("niah"):
            values = collections.defaultdict(list)
            for _, key, value in needle.findall(sample.context):
                values[key].append(value)
            for question, answer in sample.questions:
                keys = re.search(r"for (.*)\? Answer:", question).group(1).split(", ")
                self.assertEqual(", ".join(v for key in keys for v in values[key]), answer)
                asked["several keys" if len(keys) > 1 else "one key"] += 1
        self.assertTrue(asked["several keys"] > 5 and asked["one key"] > 5, asked)

    def test_easy_niah_has_numbers_behind_word_keys_only(self):
        r, tasks = random.Random(1), Tasks(hard=0)
        for _ in range(50):
            for question, answer in tasks.niah(r, 600, 4).questions:
                self.assertRegex(answer, r"^\d{7}$")
                self.assertIn("What is the secret number for", question)

    def test_keys_and_values_that_look_alike(self):
        r, tasks = random.Random(4), Tasks(alike=1)
        needle = re.compile(r"The secret (\w+) for (\S+) is (\S+)\.")
        seen = collections.Counter()
        for _ in range(60):
            sample = tasks.niah(r, 3000, 6)
            found = needle.findall(sample.context)
            for kind, key, value in found:
                for text in (key, value):
                    self.assertRegex(text, r"^[a-z]+-[a-z]+$|^[1-9]\d{6}$|^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")
            numbers = "".join(value for kind, _, value in found if kind == "number")
            codes = "".join(value for kind, _, value in found if kind == "code").replace("-", "")
            self.assertLessEqual(len(set(numbers)), 5)
            if len(codes) > 500:  # RULER's are letters to six sixteenths
                self.assertGreater(sum(c.isalpha() for c in codes) / len(codes), 0.48)
                seen["codes"] += 1
            seen["numbers"] += len(set(numbers)) > 2
            values = collections.defaultdict(list)
            for _, key, value in found:
                values[key].append(value)
            for question, answer in sample.questions:
                keys = re.search(r"for (.*)\? Answer:", question).group(1).split(", ")
                self.assertEqual(", ".join(v for key in keys for v in values[key]), answer)
        self.assertGreater(min(seen["codes"], seen["numbers"]), 3, seen)

    def test_rows_of_older_plans_are_what_they_were(self):
        """A share of strings that look alike is asked for; without it nothing is drawn."""
        made = [Tasks(alike=share).niah(random.Random(9), 2000, 4) for share in (0.0, 1e-12)]
        self.assertEqual(made[0], Tasks().niah(random.Random(9), 2000, 4))
        self.assertNotEqual(made[0], made[1])

    def test_vt_chains_lead_to_the_value(self):
        for sample in self.samples("vt"):
            assigned = dict(re.findall(r"VAR (\w+) = (?:VAR )?(\w+)\.", sample.context))
            for question, answer in sample.questions:
                value = re.search(r"hold the value (\d+)\?", question).group(1)

                def resolve(name):
                    while name in assigned:
                        name = assigned[name]
                    return name
                self.assertEqual({name for name in assigned if resolve(name) == value}, set(answer.split()))

    def test_cwe_and_fwe_answers_are_the_most_frequent(self):
        for sample in self.samples("cwe", 6000):
            counts = collections.Counter(sample.context.split("\n")[1].split(", "))
            answer = sample.questions[0][1].split()
            self.assertEqual({word for word, _ in counts.most_common(len(answer))}, set(answer))
        for sample in self.samples("fwe", 6000):
            counts = collections.Counter(sample.context.split("\n")[1].split())
            del counts["..."]
            self.assertEqual({word for word, _ in counts.most_common(3)}, set(sample.questions[0][1].split()))

    def test_qa_answers_follow_from_one_or_two_facts(self):
        hops_seen = set()
        for sample in self.samples("qa"):
            body = re.sub(r"Document \d+: ", "", sample.context.replace("\n", " "))
            facts = {}  # what a sentence "The A ... the B." says of the A
            for sentence in re.split(r"(?<=\.) ", body):
                if found := re.fullmatch(r"(the \w+ \w+) .*?(the \w+ \w+)\.", sentence[0].lower() + sentence[1:]):
                    facts.setdefault(found[1], []).append(found[2])
            for question, answer in sample.questions:
                ends = [x for start in re.findall(r"(?=(the \w+ \w+))", question) for x in facts.get(start, [])]
                if second := re.fullmatch(r"(the \w+ \w+) .*?(the \w+ \w+)", answer):  # said as a fact of the text
                    self.assertIn(second[1], ends, question)
                    self.assertIn(second[2], facts[second[1]], question)
                    self.assertIn(f"{answer[1:]}.", body)
                else:
                    self.assertIn(answer, ends, question)
                hops_seen.add(2 if second else 1)
        self.assertEqual(hops_seen, {1, 2})


class RulerTest(unittest.TestCase):
    def test_samples_fit_hold_their_answers_and_come_back(self):
        def count(s):
            return len(s) // 3

        answers = {"niah_multivalue": 4, "niah_multiquery": 4, "vt": 5, "cwe": 10, "fwe": 3}
        for task in ruler_tasks.TASKS:
            test = ruler_tasks.make_test(task, 2048, 3, 7, count, 64)
            self.assertLessEqual(count(test.prompt), 2048 - 64, task)
            self.assertGreater(count(test.prompt), 1500, task)
            self.assertEqual(len(test.answers), answers.get(task, 1), task)
            for answer in test.answers:
                self.assertIn(answer, test.prompt, task)
                self.assertIn(answer, test.reference, task)
            self.assertEqual(test, ruler_tasks.make_test(task, 2048, 3, 7, count, 64))
            self.assertNotEqual(test, ruler_tasks.make_test(task, 2048, 4, 7, count, 64))

    def test_scores(self):
        self.assertEqual(ruler_tasks.score("vt", " ABCDE XYZ", ["ABCDE", "FGHIJ"]), 0.5)
        self.assertEqual(ruler_tasks.score("qa_1", "The Old Barn.", ["the old barn", "nowhere"]), 1.0)
        self.assertEqual(ruler_tasks.score("niah_single_1", "1234568", ["1234567"]), 0.0)

    def test_a_length_that_is_too_short_is_refused(self):
        with self.assertRaisesRegex(ValueError, "does not fit into 64 tokens"):
            ruler_tasks.make_test("cwe", 64, 0, 0, len, 48)


class TextTest(unittest.TestCase):
    def test_sentences_from_all_kinds_of_files(self):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "in"
            source.mkdir()
            (source / "a.txt").write_text("It cost 1 @,@ 000 coins in all. Short. It cost 1 @,@ 000 coins in all.\n")
            (source / "b.json").write_text(json.dumps({"text": "An essay sentence of some length. \u4f60\u597d"}))
            (source / "c.jsonl").write_text(json.dumps({"meeting": [{"content": "Somebody says this at a meeting."}]}) + "\n")
            out = Path(folder) / "s.txt"
            subprocess.run([sys.executable, ROOT / "models/recipe/text.py", "--from", source, "--out", out], check=True,
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
        command = [sys.executable, ROOT / "models/recipe/train.py", "--config", config, "--out", folder, "--workers", "2"]
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
                                  (lambda c: c.update(stages=[]), "'stages' is no list of at least one stage")):
                plan = json.loads(json.dumps(TINY))
                change(plan)
                config.write_text(json.dumps(plan))
                done = subprocess.run([sys.executable, ROOT / "models/recipe/train.py", "--config", config, "--out", folder],
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
            done = subprocess.run([sys.executable, ROOT / "models/recipe/train.py", "--config", hot, "--out", out],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 1)
            self.assertIn("is not finite at step", done.stderr)
            self.assertNotIn("Traceback", done.stderr)
            self.assertEqual((out / "last.pt").read_bytes(), before)

    def test_what_does_not_compile_is_trained_without_and_the_log_says_why(self):
        program = str(ROOT / "models/recipe/train.py")
        broken = ("import runpy, sys, torch\n"
                  "def refuse(*_):\n    raise RuntimeError('no kernel for this shape')\n"
                  "torch.compile = lambda _: refuse\n"
                  f"sys.argv[0] = {program!r}\nsys.path.insert(0, {str(ROOT / 'models/recipe')!r})\n"
                  f"runpy.run_path({program!r}, run_name='__main__')")
        with tempfile.TemporaryDirectory() as folder:
            plan = Path(folder) / "plan.json"
            plan.write_text(json.dumps(TINY | {"stages": [TINY["stages"][0] | {"steps": 2}]}))
            done = subprocess.run([sys.executable, "-c", broken, "--config", plan, "--out", Path(folder) / "run",
                                   "--workers", "1", "--compile"], capture_output=True, text=True,
                                  env={**os.environ, "OMP_NUM_THREADS": "1"})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("torch.compile failed, goes on without it", done.stdout)
            self.assertEqual(done.stdout.splitlines()[-1], "finished")
            self.assertRegex(done.stderr, r"Traceback(.|\n)*no kernel for this shape")

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
            self.check_unlike()
            self.check_grown(model, Path(folder) / "grown")

    def check_older(self, folder):
        """A checkpoint of when there was one optimizer for everything."""
        import torch
        saved = torch.load(folder / "last.pt", weights_only=True)
        saved["optimizer"] = saved.pop("optimizers")[0]
        torch.save(saved, folder / "last.pt")
        done = subprocess.run([sys.executable, ROOT / "models/recipe/train.py", "--config", folder.parent / "config.json", "--out",
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
        from packing import ANSWER, CHOICE, CONTEXT, CONTEXT_EVERY, SKIP
        from tokenizer import EOS
        r, spoken = random.Random(4), 0
        for _ in range(40):
            ids, kinds, answers = packer.row(r)
            self.assertEqual((len(ids), len(kinds), len(answers)), (257, 257, 257))
            self.assertEqual([k >= ANSWER for k in kinds], [a > 0 for a in answers])
            spoken += any(answers)
        self.assertGreater(spoken, 20)
        ids, kinds = packer._answer("abcde 1234567, 89")
        words = [packer.encoder.encode(" " + word) for word in ("abcde", "1234567,", "89")]
        self.assertEqual(ids, [*words[0], *words[1], *words[2], EOS])
        self.assertEqual([i for i, kind in enumerate(kinds) if kind == CHOICE],
                         [at + i for at in (0, len(words[0]), len(words[0]) + len(words[1])) for i in (0, 1)])
        one, again = (packer.batch(random.Random("s-1")) for _ in range(2))
        self.assertTrue((one.ids == again.ids).all() and (one.positions == again.positions).all())

        def without_padding(row):
            ids, kinds, _ = row
            end = len(ids)
            while end > 0 and ids[end - 1] == EOS and kinds[end - 1] == SKIP:
                end -= 1
            self.assertGreater(end, 0, "a row of nothing")
            return kinds[:end]

        contexts = np.concatenate([without_padding(packer.row(r)) for _ in range(40)])
        self.assertAlmostEqual((contexts == CONTEXT).sum() / (contexts < ANSWER).sum(), 1 / CONTEXT_EVERY, delta=0.01)

    def check_strings(self, packer, least):
        """What is a target stood in the row before, behind the same tokens."""
        r, targets = random.Random(9), 0
        for _ in range(20):
            ids, kinds, answers = packer.row(r)
            self.assertEqual((len(ids), len(kinds), sum(answers)), (257, 257, 0))
            for i in (i for i, kind in enumerate(kinds) if kind):
                before = [ids[j - 2:j + 1] for j in range(2, i)]
                self.assertIn(ids[i - 2:i + 1], before)
                targets += 1
        self.assertGreater(targets, 20 * least)

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


if __name__ == "__main__":
    unittest.main()
