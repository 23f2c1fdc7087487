"""Tests of studies/recipe's tasks: Python alone.

  python3 studies/tests/recipe_tasks_test.py
"""
import collections
import random
import re
import unittest

import recipe_needs  # noqa: F401  first: it says where the others are

import ruler_tasks
import wording
from tasks import FAMILIES, Tasks


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

    def test_uuids_full_of_pairs(self):
        """Any pair of letters is as common as another, three times as common as in RULER's, and half begin with a letter."""
        r, pair = random.Random(5), re.compile(r"(?<![a-f])[a-f]{2}(?![a-f])")
        made = {kind: [make(r) for _ in range(4000)] for kind, make in
                (("paired", wording.paired_uuid4), ("plain", wording.uuid4))}
        for one in made["paired"] + made["plain"]:
            self.assertRegex(one, r"^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")
        pairs = {kind: collections.Counter(pair.findall(" ".join(of))) for kind, of in made.items()}
        self.assertEqual(len(pairs["paired"]), 36)
        self.assertLess(max(pairs["paired"].values()), 1.4 * min(pairs["paired"].values()))
        self.assertGreater(pairs["paired"].total(), 3 * pairs["plain"].total())
        letters = sum(one[0].isalpha() for one in made["paired"]) / 4000
        self.assertTrue(0.45 < letters < 0.55, letters)

    def test_a_plan_says_how_many_contexts_have_uuids_full_of_pairs(self):
        pair = re.compile(r"(?<![a-f0-9])[a-f]?(?:[0-9][a-f]{2}){2}")
        seen = {}
        for share in (0.0, 0.5, 1.0):
            r, tasks = random.Random(6), Tasks(uuids=0.0, uuid_values=1000, pairs=share)
            seen[share] = sum(bool(pair.search(tasks.niah(r, 600, 1).context)) for _ in range(200))
        self.assertTrue(seen[0.0] + 30 < seen[0.5] < seen[1.0] - 30, seen)

    def test_rows_of_older_plans_are_what_they_were(self):
        """A share of strings that look alike is asked for; without it nothing is drawn."""
        made = [Tasks(alike=share).niah(random.Random(9), 2000, 4) for share in (0.0, 1e-12)]
        self.assertEqual(made[0], Tasks().niah(random.Random(9), 2000, 4))
        self.assertNotEqual(made[0], made[1])

    def test_the_weight_of_uuids_behind_words_is_the_plans(self):
        seen = {}
        for weight in (0, 2, 1000):
            tasks, r = Tasks(uuids=0.0, uuid_values=weight), random.Random(3)
            contexts = [tasks.niah(r, 600, 1).context for _ in range(200)]
            seen[weight] = sum(bool(re.search(r"[0-9a-f]{8}-[0-9a-f]{4}-", c)) for c in contexts)
        self.assertEqual(seen[0], 0)
        self.assertTrue(20 < seen[2] < 80, seen)  # two of nine
        self.assertGreater(seen[1000], 190)

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


if __name__ == "__main__":
    unittest.main()
