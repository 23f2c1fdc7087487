"""Makes longproc_goldens.json: a small data folder of our own, answers to its samples, and upstream's scores of them.

  python3 tests/eval/longproc/longproc_goldens.py CHECKOUT [--count N] [--seed N] [--out FILE]
  python3 tests/eval/longproc/longproc_goldens.py CHECKOUT --published      hashes for longproc_goldens_test.cc

CHECKOUT: github.com/princeton-pli/LongProc at 78e873a. Made with Python 3.11, pandas 3.1.1, PyYAML and tqdm. --count: answers to
each sample that are changed at random; the file in the repository has the default. More are compared by the test with

  TANDEM_LONGPROC_GOLDENS=FILE test_eval --gtest_filter='LongProcGoldens.*'

An answer is a list of texts and of pairs, which are parts of the sample's reference in bytes. Scores are null where upstream's
program ends with an error.
"""
import argparse
import contextlib
import difflib
import importlib.metadata
import io
import json
import pathlib
import random
import sys
import tempfile

PROMPTS = {
    "html_to_tsv": "Read {html_str}\n\nabout {task_topic}: {task_description}{filtering_instruction}\n  {tsv_header}\n{{Rows}}",
    "path_traversal": "{city_context}\n\nGo from {src_city} to {dst_city}.",
    "tom_tracking": "Format: {{place: shed}}\n\n{story}\n{question}",
    "countdown": "{demonstration}\n\nNow {nums} to {target}\n",
}
CELLS = ["The lamp", "a lamp", "An Old Chair", '5" screen', '"Best" desk', '"x""y"', "", "N/A", "€ 599,00", "12.5 kg", "İstanbul", "Straße", "thé",
         "ΟΔΟΣ", "x, y; z", "well-known", "a", "the", "--", "北京", "１２", "“quoted”", "O’Neil", "x\u00a0y", "Sofa  bed", "  spaced ", "3/4", "x\\ty"]
CITIES = ["Arlo", "Brix", "Cadmoor", "Dunley", "Elmath", "Fenwick", "Garrow", "Holt", "Inverlea", "Jarrow", "Port Kell", "Lundby"]
WAYS = ["bus", "train", "plane", "ferry"]
JOINED = [" ", "\n", "\r\n", "\r", "\t", "\u00a0", "\u2028", "\x0b", "\x1f", "\x85", "'", "’", "“", ".", ",", "-", "=", '"', "the ", "a ", " location ", "0", "7", "Ä", "x"]


def html_samples(rng, length):
    samples, pages = [], {}
    for n in range(2):
        columns = rng.choice([1, 2, 2, 3, 4])
        rows = [[rng.choice(CELLS) for _ in range(columns)] for _ in range(rng.randint(2, 7))]
        rows = [row for row in rows if "".join(row).strip()] or [["x"] * columns]
        header = [f"column {i}" for i in range(columns)]
        page = f"webpage/P{n}_{length}.html"
        pages[page] = rng.choice(["\n", "\r\n"]).join(["<table>"] + [f"<tr><td>{'</td><td>'.join(r)}</td></tr>" for r in rows] + ["</table>"])
        samples.append({"task_id": f"P{n}", "website_id": "P", "html_path": page, "task_topic": "things {all}", "task_description": "(1) what",
                        "filtering_instruction": rng.choice(["", "\nOnly lamps."]), "tsv_header": "\t".join(header),
                        "gt": "\n".join("\t".join(r) for r in [header] + rows) + rng.choice(["", "\n"])})
    return samples, pages


def path_samples(rng, _):
    samples = []
    for _ in range(2):
        cities = rng.sample(CITIES, rng.randint(3, 8))
        legs = [(a, b, rng.choice(WAYS)) for a, b in zip(cities, cities[1:])]
        told = rng.sample(legs, len(legs))
        samples.append({"context_nl": "\n".join(f"{a} lies well. A {w} goes from {a} to {b}." for a, b, w in told), "question_repr": [cities[0], cities[-1]],
                        "answer_nl": "\n".join(f"From {a}, take a {w} to {b}." for a, b, w in legs) + rng.choice(["", "\n"])})
    return samples


def tom_samples(rng, _):
    samples = []
    for _ in range(2):
        who, what, places, lines, story = rng.choice(["Ada", "Béla", "Cyd"]), rng.choice(["key", "the cup"]), ["hall's shelf", "attic's box", "yard's bench"], [], []
        belief = "None"
        for step in range(rng.randint(3, 6)):
            room, place = rng.choice(["hall", "attic", "yard"]), rng.choice(places)
            seen = place.startswith(room)
            belief = place if seen else belief
            story.append(f"Step {step}: {who} goes to the {room}; the {what} is on the {place}.")
            lines.append(f"- Step {step}: {{{who} location: {room}; {what} location: {place}; {who} sees {what}: {seen}; {who}'s belief on {what}: {belief}}}")
        samples.append({"story_components": "x", "story": "\n".join(story), "question": f"Where does {who} believe the {what} is?",
                        "solution": f"{who}'s belief on the {what}:\n" + "\n".join(lines) + f"\nFinal Answer: the {belief}"})
    return samples


def countdown_samples(rng, upstream):
    samples = []
    while len(samples) < 2:
        nums = [rng.randint(1, 20) for _ in range(4)]
        target = rng.choice([sum(nums), sum(nums[:2]) * nums[2] + nums[3], abs(nums[0] + nums[1] + nums[2] - nums[3])])
        try:
            solution, text = upstream.build_countdown_demonstration(nums[:], target)
        except ValueError:
            continue
        if len(text) > 2500:
            continue
        published = text.replace("# Search Procedure", "<Search Procedure>").replace("\n\nNow we", "\n</Search Procedure>\n\nNow we")
        samples.append({"nums": nums, "target": target, "solution": solution, "demonstration": published})
    return samples


def whole_answer(kind, reference):
    if kind == "html_to_tsv":
        return f"```tsv\n{reference}\n```"
    return f"<Route>\n{reference}\n</Route>" if kind == "path_traversal" else reference


def changed_lines(rng, text):
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    change = rng.randrange(8)
    if change == 0:
        del lines[at]
    elif change == 1:
        lines.insert(at, lines[at])
    elif change == 2:
        other = rng.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    elif change == 3:
        lines[at] = rng.choice([lines[at].upper(), lines[at].lower(), " " + lines[at], lines[at] + " ", "\t" + lines[at], ""])
    elif change == 4:
        lines[at:] = lines[at:][:rng.randint(0, 2)]
    elif change == 5 and lines[at]:
        place = rng.randrange(len(lines[at]))
        lines[at] = lines[at][:place] + rng.choice(JOINED) + lines[at][place + rng.randint(0, 2):]
    elif change == 6:
        lines.insert(at, rng.choice(["", "Well.", "- So", "x\ty", "```", "= 3"]))
    else:
        words = lines[at].split(" ")
        words[rng.randrange(len(words))] = rng.choice(["", "x", "3", "4-7", "1 + 2 = 3", "drop this branch"])
        lines[at] = " ".join(words)
    return "\n".join(lines)


def answers(rng, kind, reference, count):
    whole = whole_answer(kind, reference)
    middle = whole[:len(whole) * 2 // 3]
    yield from [whole, "", " \n", reference, f"Sure!\n\n{whole}\n\nDone.", whole.replace("\n", "\r\n"), whole.upper(), whole.lower(), middle, whole[:len(whole) // 3],
                whole + "\n" + whole, whole.replace("\n", "\n\n"), whole.replace(".", ""), whole.replace("\t", "    "), whole.replace(" ", "  "), whole.replace(" ", "\u00a0"),
                "\n".join("  " + line for line in whole.split("\n"))]
    if kind == "html_to_tsv":
        body = reference.strip("\n")
        header = body.split("\n")[0]
        yield from [whole[:-3], f"```tsv\n{body}\nThe end\n```", f"```\n{body}\n```", f"```TSV\n{body}\n```", f"```tsv{body}```", f"```tsv\n{header}\n```", f"{header}\nx",
                    f"```tsv\n{body}\n```\nand\n```tsv\n{body}\n```", "```tsv", "``````tsv``````", body.replace("\t", ","), f"{header}\textra\n" + body, "a\ta\nx\ty",
                    "\n".join(line + "\tx" for line in body.split("\n")), body.replace("column 0", "column 1"), body + '\n"open\nrow\tcell', '"' + body, body + "\n\n\nx",
                    "\n".join('"' + line.replace('"', '""').replace("\t", '"\t"') + '"' for line in body.split("\n")), body.replace("\n", "\rx\n"), body.replace("\n", "\r\r\n")]
    if kind == "path_traversal":
        yield from [whole.replace("</Route>", ""), whole.replace("<Route>", ""), whole.replace("Route>", "route>"), f"</Route>{whole}", f"<Route></Route>{whole}",
                    f"<Route>{reference}</Route>", f"<Route>\n{reference}\nFrom Holt, take a bus to Holt.\n</Route>", "<Route>\n</Route>", f"<Route>x\n{whole}"]
    if kind == "tom_tracking":
        yield from [reference.replace("- Step", " - Step"), reference.replace("- Step", "-Step"), reference.replace("- Step", "* Step"), reference.replace("'s", "’s"),
                    reference.replace("- Step", "- the step: “step” of"), "-\n- \n" + reference, reference.replace("\n", "\x0c"), reference.replace("\n", "\u2028"), "- a\n- the",
                    "  - x\n" + reference, reference + "\n- more"]
    if kind == "countdown":
        head, tail = reference.split("<Solution>\n")
        first, second, third = tail.split("\n")[:3]

        def solved(*lines): return head + "<Solution>\n" + "\n".join(lines) + "\n</Solution>"
        a, rest = first.split(" ", 1)
        yield from [solved(first, second), solved(first, second, third, third), solved(third, second, first), solved(first, second, third + " "), solved(first, "", second, third),
                    solved(first.replace(" ", ""), second, third), solved(first + " = 3", second, third), solved(first.replace("=", "=="), second, third),
                    solved(first, second, third.split("=")[0] + "= 3.0"), solved(first, second, third.split("=")[0] + "= 1"), solved("(" + first, second, third),
                    solved("1. " + first, second, third), solved("x = 3", second, third), solved("7 / 0 = 3", second, third), solved(f"+{first}", second, third),
                    solved(f"-{a} {rest}", second, third), solved(first.split("=")[0] + "= +" + first.split("= ")[1], second, third), solved("1 + 1 = 2", "1 + 1 = 2", "2 + 2 = 4"),
                    solved("First: " + first, second, third), solved(first, second, "Final: " + third), solved("10 = 10", second, third), solved("2 ** 3 = 8", second, third),
                    tail, "<Solution>\n" + tail, head, "# Search Procedure", "# Search Procedure\n" + head, head.replace("# Search Procedure", "Search Procedure"),
                    head.replace("drop this branch", "go on"), head.replace(" = ", " = 1"), head.split("\n |-")[0], head.replace("Now we have found", "So it is"), solved("0 / 5 = 0", "a", "b")]
    for _ in range(count):
        text = whole
        for _ in range(rng.choice([1, 1, 2, 4])):
            text = changed_lines(rng, text)
        yield text


def parts_of(answer, reference):
    """Texts, and pairs of places in the reference."""
    old, new = reference.splitlines(keepends=True), answer.splitlines(keepends=True)
    places = [0]
    for line in old:
        places.append(places[-1] + len(line.encode()))
    parts = []
    for tag, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            parts.append([places[a], places[b]])
        elif c < d:
            parts.append("".join(new[c:d]))
    return parts


def scores(evaluate, answer, sample):
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            return {name: float(value) for name, value in evaluate(answer, sample)[0].items()}
        except Exception:  # whatever the program ends with
            return None


def write(folder, files):
    for name, text in files.items():
        path = pathlib.Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


def fnv1a64(data):
    value = 0xcbf29ce484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001b3) & 0xffffffffffffffff
    return value


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout")
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--published", action="store_true")
    parser.add_argument("--out", default=str(pathlib.Path(__file__).with_suffix(".json")))
    args = parser.parse_args()
    sys.path.insert(0, args.checkout)
    sys.dont_write_bytecode = True
    from longproc import countdown_evaluator, longproc_data
    if args.published:
        return published(longproc_data, pathlib.Path(args.checkout) / "data")
    rng = random.Random(args.seed)
    examples = {(40, 19, 23, 7): "<Search Procedure>\nsearched once\n</Search Procedure>\n\nfound", (9, 16, 6, 18): "<Search Procedure>\ntwice\n</Search Procedure>\n\nNow"}
    files, tasks = {}, {}
    for kind, prompt in PROMPTS.items():
        files[f"data/{kind}/prompts.yaml"] = "USER_PROMPT: |-\n" + "\n".join("  " + line if line else "" for line in prompt.split("\n")) + "\n"
    make = {"path_traversal": path_samples, "tom_tracking": tom_samples, "countdown": lambda rng, _: countdown_samples(rng, countdown_evaluator)}
    for length in ["0.5k", "2k", "8k"]:
        tasks[f"html_to_tsv_{length}"], pages = html_samples(rng, length)
        files |= {f"data/html_to_tsv/{name}": text for name, text in pages.items()}
        for kind, samples in make.items():
            tasks[f"{kind}_{length}"] = samples(rng, length)
    for task, nums, target in [("countdown_0.5k", (40, 19, 23, 7), 29), ("countdown_8k", (9, 16, 6, 18), 12)]:
        tasks[task].append({"nums": list(nums), "target": target, "demonstration": examples[nums]})
    for task, samples in tasks.items():
        files[f"data/{task.rsplit('_', 1)[0]}/{task}.json"] = json.dumps(samples, ensure_ascii=False)

    def searched(nums, target):  # the examples' own texts are long
        known = examples.get(tuple(nums))
        if known is None:
            return countdown_evaluator.build_countdown_demonstration(nums, target)
        solution = ["40 + 19 = 59", "59 - 7 = 52", "52 - 23 = 29"] if target == 29 else ["18 - 16 = 2", "2 * 9 = 18", "18 - 6 = 12"]
        return solution, known.replace("<Search Procedure>", "# Search Procedure").replace("\n</Search Procedure>", "")
    longproc_data.build_countdown_demonstration = searched

    goldens = []
    with tempfile.TemporaryDirectory() as folder:
        write(folder, files)
        loaded = {task: longproc_data.load_longproc_data(task, folder + "/data") for task in tasks}
    for task, (samples, evaluate) in loaded.items():
        for number, sample in enumerate(samples):
            reference, kind = sample["reference_output"], task.rsplit("_", 1)[0]
            some = [] if number > 0 else list(dict.fromkeys(answers(rng, kind, reference, args.count)))
            goldens.append({"task": task, "index": number, "prompt": sample["input_prompt"], "reference": reference,
                            "answers": [[parts_of(one, reference), scores(evaluate, one, sample)] for one in some]})
    made_with = {"python": sys.version.split()[0], "LongProc": "78e873a"} | {name: importlib.metadata.version(name) for name in ["pandas", "pyyaml"]}
    with open(args.out, "w") as out:
        json.dump({"made_with": made_with, "files": files, "samples": goldens}, out, ensure_ascii=False, separators=(",", ":"))
        out.write("\n")
    every = [one[1] for golden in goldens for one in golden["answers"]]
    print(f"{len(every)} answers, {every.count(None)} of which end upstream's program")


def published(longproc_data, data):
    """Of each task: samples, references that score 1, and a hash of all prompts and references."""
    for path in sorted(data.glob("*/*_*k.json")):
        samples, evaluate = longproc_data.load_longproc_data(path.stem, str(data))
        text = "".join(sample["input_prompt"] + "\0" + sample["reference_output"] + "\0" for sample in samples)
        kind = path.stem.rsplit("_", 1)[0]
        right = [] if kind == "pseudo_to_code" else [scores(evaluate, whole_answer(kind, sample["reference_output"]), sample) for sample in samples]
        print(path.stem, len(samples), sum(list(one.values())[0] == 1 for one in right), hex(fnv1a64(text.encode())), flush=True)


if __name__ == "__main__":
    main()
