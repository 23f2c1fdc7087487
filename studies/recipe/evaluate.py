"""Tests an exported model on RULER's tasks, with samples that training has not seen, by task and length.

  python3 studies/recipe/evaluate.py --model runs/gpu/export --lengths 1K,4K,16K --out runs/gpu

Writes OUT/accuracy.json: per task and length the RULER score (share of the answers found; for qa: any), the share of word
for word answers, the number of samples and a 95 % interval (Wilson, of the word for word share). Finished cells are kept:
the same command adds what is missing, and --minutes ends it in time. Greedy decoding; BOS + prompt, as in training.

These are PyTorch's answers to samples of this file's generator (ruler_tasks.py). What Tandem itself measures, on its own
samples, is `tandem compare --model DIR --methods full`.
"""
import argparse
import hashlib
import json
import math
import multiprocessing
import os
import time
from pathlib import Path

import torch

from export import read_export, write_json
from model import Model
from ruler_tasks import TASKS, Test, make_test, score
from tokenizer import BOS, EOS, Encoder

_encoder: Encoder | None = None


def room_for(task: str) -> int:
    """Tokens kept free for the answer: the longest a task's answer gets with this tokenizer, with a margin."""
    return {"niah_single_3": 64, "niah_multikey_3": 64, "niah_multivalue": 64, "niah_multiquery": 64, "cwe": 96}.get(task, 48)


def _start(tokenizer: str) -> None:
    global _encoder
    _encoder = Encoder(tokenizer)


def sample(encoder: Encoder, task: str, length: int, index: int, seed: int) -> tuple[Test, list[int], list[int]]:
    """With its prompt's tokens and those of its answer as it was taught."""
    test = make_test(task, length, index, seed, lambda s: len(encoder.encode(s)) + 1, room_for(task))
    return test, [BOS] + encoder.encode(test.prompt), encoder.encode(" " + test.reference) + [EOS]


def _prepare(job: tuple[str, int, int, int]) -> tuple[Test, list[int], list[int]]:
    return sample(_encoder, *job)


@torch.no_grad()
def answer(model: Model, prompt: list[int], reference: list[int], most: int, device: str) -> list[int]:
    """Greedy tokens. The reference goes through in one pass: as long as it is what the model says, that is its answer;
    from the first difference on it decodes token by token."""
    amp = torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda")
    past: list[list] = [[] for _ in model.layers]
    ids = torch.tensor([prompt + reference[:-1]], device=device)
    with amp:
        hidden = model(ids, torch.arange(ids.shape[1], device=device)[None], past)[0, len(prompt) - 1:]
        said = model.logits(hidden).argmax(-1).tolist()
    agreed = 0
    while agreed < len(reference) and said[agreed] == reference[agreed]:
        agreed += 1
    out = said[:agreed + 1]
    if out[-1] == EOS or agreed == len(reference):
        return out
    for layer in past:
        layer[:] = [tensor[:, :len(prompt) + agreed] for tensor in layer]  # [B][T][heads][D]
    while len(out) < most and out[-1] != EOS:
        position = len(prompt) + len(out) - 1
        with amp:
            hidden = model(torch.tensor([[out[-1]]], device=device), torch.tensor([[position]], device=device), past)
            out.append(int(model.logits(hidden[0, -1]).argmax()))
    return out


def hash_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def wilson(good: int, n: int) -> list[float]:
    z, p = 1.959964, good / n
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return [round((middle - half) / (1 + z * z / n), 4), round((middle + half) / (1 + z * z / n), 4)]


def cell(model: Model, encoder: Encoder, task: str, tests, device: str) -> dict:
    total, exact, n = 0.0, 0, 0
    for test, prompt, reference in tests:
        most = room_for(task)
        said = encoder.decode(answer(model, prompt, reference, most, device))
        total += score(task, said, test.answers)
        exact += said.strip() == test.reference
        n += 1
    return {"score": round(total / n, 4), "exact": round(exact / n, 4), "interval": wilson(exact, n), "n": n}


def lengths_of(given: str) -> list[int]:
    try:
        return [int(x[:-1]) * 1024 if x[-1:] in ("K", "k") else int(x) for x in given.split(",")]
    except ValueError:
        raise SystemExit(f"evaluate.py: --lengths is '{given}': give tokens like 1K,4096.") from None


def main() -> None:
    # cuDNN's attention, which torch prefers on new GPUs, builds a plan for every new length, and here nearly every one is new.
    torch.backends.cuda.enable_cudnn_sdp(False)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="an exported folder")
    parser.add_argument("--out", required=True, nargs="+", help="folder for accuracy.json; further folders get copies")
    parser.add_argument("--lengths", default="1K,2K,4K,8K,16K", help="default 1K,2K,4K,8K,16K")
    parser.add_argument("--tasks", default=",".join(TASKS), help="default: all")
    parser.add_argument("--samples", type=int, default=100, help="per task and length (default 100)")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--minutes", type=float, default=0, help="stop after this time; 0: when all is done")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="processes that make samples")
    options = parser.parse_args()
    tasks = options.tasks.split(",")
    for task in tasks:
        if task not in TASKS:
            raise SystemExit(f"evaluate.py: there is no task '{task}'; there are {', '.join(TASKS)}.")
    folder, began = Path(options.model), time.monotonic()
    tokenizer = str(folder / "tokenizer.model")
    files = [Path(folder) / "accuracy.json" for folder in options.out]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
    file = files[0]
    weights = sorted(f"{f.name} {f.stat().st_size} {hash_of(f)}" for f in folder.glob("*.safetensors"))
    table = {"model": weights, "samples": options.samples, "seed": options.seed, "tasks": {}}
    if file.exists():
        before = json.loads(file.read_text(encoding="utf-8"))
        if all(before.get(k) == table[k] for k in ("model", "samples", "seed")):
            table = before  # same model, same samples: what is there stays
    with multiprocessing.get_context("fork").Pool(options.workers, _start, (tokenizer,)) as pool:  # before CUDA
        device = "cuda" if torch.cuda.is_available() else "cpu"
        model, encoder = read_export(folder).to(device), Encoder(tokenizer)
        for length in lengths_of(options.lengths):
            for task in tasks:
                cells = table["tasks"].setdefault(task, {})
                if str(length) in cells:
                    continue
                if options.minutes and time.monotonic() - began > 60 * options.minutes:
                    print(f"{options.minutes:g} minutes are over; {file} has what is finished, the same command goes on")
                    return
                jobs = [(task, length, i, options.seed) for i in range(options.samples)]
                try:
                    cells[str(length)] = cell(model, encoder, task, pool.imap(_prepare, jobs), device)
                except ValueError as error:
                    raise SystemExit(f"evaluate.py: {error}") from None
                for each in files:
                    write_json(each, table)
                c = cells[str(length)]
                print(f"{length:6}  {task:16} score {100 * c['score']:5.1f} %  word for word {100 * c['exact']:5.1f} %  "
                      f"n {c['n']}", flush=True)


if __name__ == "__main__":
    main()
