"""Trains a small retrieval model (Qwen3 architecture) for Tandem and exports it as a Hugging Face folder.

  python3 studies/recipe/train.py --tiny --out runs/tiny                        a model of at most 2 MB, some minutes on a CPU
  python3 studies/recipe/train.py --config studies/recipe/cpu.json --out runs/cpu --text sentences.txt
  python3 studies/recipe/train.py --config studies/recipe/gpu.json --out runs/gpu --text sentences.txt

Needs torch 2.9 or newer, sentencepiece and numpy; nothing else in Tandem does. sentences.txt comes from
studies/recipe/text.py; without it natural text is left out. On a GPU machine use studies/recipe/train_on_gpu.sh.

Every few minutes, at the end of each stage, on SIGTERM or ^C and where OUT/save-now appears (it is removed), OUT/last.pt
(weights, optimizer, place in the plan and in the data) and OUT/export (the model so far) are replaced. The same command goes on from there, in the middle of a stage too.
OUT/beat is touched after every step. OUT/log.jsonl has one line per log_every steps; plot_training.py draws it, evaluate.py
tests OUT/export.

A stage of the configuration: minutes (or steps), T tokens per row, B rows per batch, pmax largest position, and shares: rep
rows of repeats (strings: how many of those are UUIDs and the like, not random tokens), lm rows of natural text, dense rows
with many questions, hard tasks (several: of those, keys with several values, 0.2 where it is not said; crowded: contexts of
needles alone, 0.35 where it is not said; uuids: of niah's contexts, those whose keys are UUIDs, 0.2 where it is not said;
uuid_values: the weight of UUIDs as values behind other keys, where numbers have 6 and words 1: 2 where it is not said; alike:
contexts and rows of strings that look alike; pairs: of the others, those whose UUIDs are full of pairs of letters; few: of rows of
strings, those of a few tokens of any kind; letters: 1 where a UUID's letters count three times in the loss; guide: the weight in
the loss of what guided attention misses; hops: of qa's questions, those that follow from two facts, 0.2 where it is not said;
questions: a dense context has fewer than so many, 12 where it is not said); families: weights of niah, vt, cwe, fwe, qa.

With "hold" the learning rate stays for that share of the plan, and comes down in the rest; without it it comes down from the start.

"guided": {"copies": {"layer": 3, "kv_head": 0}} names a KV head whose attention stages with "guide" teach where to look
(guide.py): "copies" while it says a value, "lists" while it says which of a list's commonest words comes next.

A configuration with "grow" starts from --init, at its first stage where that has fewer layers: "grow": [0, -1, 1] puts a new
layer between its two. One that has grown already is gone on with. A new layer adds nothing at first, so that training begins where the smaller model ended.
"""
import time

BEGAN = time.monotonic()  # --within begins here: on a cold disk importing torch is part of it

import argparse
import contextlib
import json
import math
import os
import signal
import traceback
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np
import torch
import torch.nn.functional as F

import attention_cpu
import guide
import text
from export import read_export, write_export
from model import Model, Shape
from muon import Muon
from packing import ANSWER, WEIGHTS, Batch, Batches
from plan import GUIDES, Plan, read_config
from tasks import FAMILIES, Tasks
from tokenizer import Encoder, train_tokenizer

HERE = Path(__file__).resolve().parent


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default=str(HERE / "cpu.json"), help="cpu.json, gpu.json or another (default cpu.json)")
    parser.add_argument("--tiny", action="store_true", help="the same as --config tiny.json")
    parser.add_argument("--out", required=True, help="folder of the checkpoint, the log and the export")
    parser.add_argument("--text", help="sentences of natural text, made by text.py")
    parser.add_argument("--minutes", type=float, help="scale the plan to this many minutes")
    parser.add_argument("--within", type=float, help="scale what is left of the plan so that it ends so many minutes after this "
                        "start, whatever compiling and saving take")
    parser.add_argument("--init", help="an export to start from where OUT has no checkpoint, with a new optimizer: at the stage "
                        "that it had reached, or at the first where its plan was finished or was another one")
    parser.add_argument("--workers", type=int, default=max(1, len(os.sched_getaffinity(0)) - 1),
                        help="processes that make data (default: one per core but one)")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model; without it where that fails")
    return parser.parse_args()


LAST_SAVE = 15.0  # seconds of --within that are kept for it and for a step that is not cut
_signals: list[int] = []


def stopping() -> bool:
    """Whether SIGTERM or ^C has come. A step is never cut: the checkpoint is of whole ones."""
    return bool(_signals)


class Said(NamedTuple):
    """What the model said of a batch: its loss, of each token that counts the logits, loss, target, kind and place, and how much
    of the guided attention missed."""
    loss: torch.Tensor
    logits: torch.Tensor
    losses: torch.Tensor
    targets: torch.Tensor
    kinds: torch.Tensor
    counts: np.ndarray
    missed: dict[str, torch.Tensor]


def answer_figures(logits: torch.Tensor, losses: torch.Tensor, targets: torch.Tensor, rows: np.ndarray,
                   answers: np.ndarray) -> dict:
    """Loss and share of wholly right answers by family, on a batch that the model has not seen before."""
    at = answers > 0
    right = (logits.argmax(-1) == targets).cpu().numpy()[at]
    each = losses.detach().float().cpu().numpy()[at]
    number = answers[at].astype(np.int64)
    key = rows[at].astype(np.int64) << 32 | number
    out = {}
    for f, family in enumerate(FAMILIES):
        mine = number % 8 == f + 1
        if mine.any():
            wrong = np.unique(key[mine & ~right]).size
            all_answers = np.unique(key[mine]).size
            out[family] = {"loss": round(float(each[mine].mean()), 4), "right": round(1 - wrong / all_answers, 4),
                           "answers": all_answers}
    return out


class Trainer:
    def __init__(self, options: argparse.Namespace, config: dict):
        self.options, self.config, self.out = options, config, Path(options.out)
        self.plan = Plan(config)
        self.out.mkdir(parents=True, exist_ok=True)
        self.sentences = text.load(options.text)
        self.tokenizer = self.out / "tokenizer.model"
        if not self.tokenizer.exists():
            if options.init:
                self.tokenizer.write_bytes((Path(options.init) / "tokenizer.model").read_bytes())
            else:
                train_tokenizer(self.tokenizer, Tasks(self.sentences), self.sentences, config["vocabulary"])
        self.batches = Batches(self.tokenizer, self.sentences, options.workers)  # before CUDA: it forks
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        # Not cuDNN's attention, which torch may prefer on new GPUs: on H100s and H200s some versions make gradients that are no
        # numbers (pytorch issue 196678); a training in bf16 that had died of it was no slower without (kyutai-labs/pocket-tts, 264).
        torch.backends.cuda.enable_cudnn_sdp(False)
        torch.manual_seed(config["seed"])
        torch.set_float32_matmul_precision("high")
        self.model = Model(Shape(**config["model"], vocabulary=Encoder(self.tokenizer).vocabulary)).to(self.device)
        self.optimizers = self.make_optimizers(config["lr"])
        self.new_steps = 0  # of these optimizers
        self.unsound = torch.zeros((), dtype=torch.int64, device=self.device)  # steps since gradients were checked
        self.restore()
        if options.compile:
            self.model.compile_layers()
        self.weights = torch.tensor(WEIGHTS, device=self.device)

    def make_optimizers(self, lr: float) -> list[torch.optim.Optimizer]:
        """Muon for the layers' matrices, AdamW for the embedding and the norms."""
        matrices = [p for p in self.model.layers.parameters() if p.dim() == 2]
        vectors = [p for p in self.model.parameters() if p.dim() < 2]
        rest = [{"params": [self.model.embed.weight], "weight_decay": 0.05}, {"params": vectors, "weight_decay": 0.0}]
        return [Muon(matrices, lr=lr, weight_decay=0.05),
                torch.optim.AdamW(rest, lr=lr, betas=(0.9, 0.98), fused=True)]

    # ---- checkpoint ----------------------------------------------------------------------------------------------
    def restore(self) -> None:
        for file in (self.out / "last.pt", self.out / "last.pt.old"):
            if not file.exists():
                continue
            try:
                saved = torch.load(file, map_location=self.device, weights_only=True)
            except Exception as error:  # torn by a power cut: the one before is whole
                print(f"{file} cannot be read ({error}), trying the one before", flush=True)
                continue
            if saved["model_config"] != self.config["model"]:
                raise SystemExit(f"train.py: {file} is of another model than the configuration: choose another --out.")
            if "optimizers" not in saved:
                raise SystemExit(f"train.py: {file} was written before training used Muon: choose another --out, and its export "
                                 "as --init.")
            self.model.load_state_dict(saved["model"])
            for optimizer, state in zip(self.optimizers, saved["optimizers"], strict=True):
                optimizer.load_state_dict(state)
            self.plan.state, self.new_steps = saved["plan"], saved["new_steps"]
            print(f"goes on from {file}: {self.plan.state}", flush=True)
            return
        if "grow" in self.config and not self.options.init:
            raise SystemExit("train.py: this configuration grows a model (grow): name its export with --init.")
        smaller = read_export(Path(self.options.init)) if self.options.init else None
        if "grow" in self.config and smaller.shape.layers != self.model.shape.layers:  # else it has grown already
            self.model.grow_from(smaller, self.config["grow"])
            print(f"grown from {self.options.init}", flush=True)
        elif self.options.init:
            self.model.load_state_dict(smaller.state_dict())
            trained = json.loads((Path(self.options.init) / "training.json").read_text(encoding="utf-8"))
            # models/seed's names no place in a plan: it is of an earlier recipe. A place in another plan says nothing of this one.
            if ("plan" in trained and self.plan.same(trained["config"])
                    and trained["plan"]["stage"] < len(self.plan.stages)):
                self.plan.state = trained["plan"]
            print(f"starts from {self.options.init}: {self.plan.state}", flush=True)

    def save(self) -> None:
        if not all(torch.isfinite(p).all() for p in self.model.parameters()):
            self.diverged("a weight")
        file, new = self.out / "last.pt", self.out / "last.pt.new"
        with new.open("wb") as handle:
            torch.save({"model": self.model.state_dict(), "optimizers": [o.state_dict() for o in self.optimizers],
                        "plan": self.plan.state, "new_steps": self.new_steps, "model_config": self.config["model"]}, handle)
            handle.flush()
            os.fsync(handle.fileno())
        if file.exists():
            os.replace(file, self.out / "last.pt.old")
        os.replace(new, file)
        training = {"plan": self.plan.state, "parameters": sum(p.numel() for p in self.model.parameters()),
                    "device": torch.cuda.get_device_name() if self.device == "cuda" else "CPU",
                    "torch": torch.__version__, "config": self.config, "text_sentences": len(self.sentences)}
        sources = Path(str(self.options.text) + ".sources.json")
        if self.options.text and sources.exists():
            training["text_sources"] = json.loads(sources.read_text(encoding="utf-8"))
        write_export(self.model, self.tokenizer, self.out / "export", training, self.config["shard_mb"],
                     self.config["most_mb"])

    def diverged(self, what: str) -> NoReturn:
        raise SystemExit(f"train.py: {what} is not finite at step {self.plan.state['step']}. {self.out / 'last.pt'} and the export "
                         "are those of before; give the plan a smaller lr and start again from that export (--init).")

    # ---- steps ---------------------------------------------------------------------------------------------------
    def amp(self):
        return torch.autocast(self.device, dtype=torch.bfloat16)

    def to_device(self, array: np.ndarray) -> torch.Tensor:
        tensor = torch.from_numpy(array.astype(np.int64))
        return (tensor.pin_memory() if self.device == "cuda" else tensor).to(self.device, non_blocking=True)

    def gradients(self, batch: Batch) -> Said:
        # What counts is found on the CPU: asking the device would make it wait for every step.
        counts = np.flatnonzero(batch.kinds[:, 1:])
        ids, positions = self.to_device(batch.ids), self.to_device(batch.positions)
        index, kinds = self.to_device(counts), self.to_device(batch.kinds[:, 1:].ravel()[counts])
        guided = self.config.get("guided", {}) if self.guide_weight() else {}
        inputs: list[torch.Tensor] | None = [] if guided else None
        with self.amp():
            logits = self.model.logits(self.model(ids[:, :-1], positions, inputs=inputs).flatten(0, 1)[index])
            missed = {which: self.missed(batch, which, head, inputs[head["layer"]], positions) for which, head in guided.items()}
        targets, weight = ids[:, 1:].reshape(-1)[index], self.weights[kinds]
        losses = F.cross_entropy(logits.float(), targets, reduction="none")
        loss = (losses * weight).sum() / weight.sum().clamp(min=1e-9)
        self.model.zero_grad(set_to_none=True)
        (loss + self.guide_weight() * sum(missed.values())).backward()
        return Said(loss, logits, losses, targets, kinds, counts, missed)

    def missed(self, batch: Batch, which: str, head: dict, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        told = batch.sources[batch.sources[:, 0] == GUIDES.index(which), 1:]
        each = np.bincount(told[:, 0], minlength=len(batch.ids)).tolist()
        kinds = batch.kinds[told[:, 0], told[:, 1] + 1]
        return guide.missed(self.model, head["layer"], head["kv_head"], x, positions, self.to_device(told), each,
                            self.weights[self.to_device(kinds)])

    def guide_weight(self) -> float:
        return self.plan.stages[self.plan.state["stage"]].get("guide", 0.0)

    def clip_gradients(self) -> None:
        """One value that is no number would be all of them once they are clipped, and all weights after the step: such a
        gradient counts as 0. The device is not asked: it would be waited for."""
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        unsound = ~torch.isfinite(norm)
        for p in self.model.parameters():
            if p.grad is not None:
                p.grad.masked_fill_(unsound, 0.0)
        self.unsound += unsound

    def check_gradients(self, steps: int) -> None:
        """Of the last steps; waits for the device."""
        lost = int(self.unsound.item())
        self.unsound.zero_()
        if lost == 0:
            return
        print(f"{lost} of {steps} steps had gradients that are no numbers, and left them out", flush=True)
        if 2 * lost > steps:
            self.diverged("the gradient of most steps")

    def step(self, batch: Batch, figures: bool) -> dict:
        try:
            said = self.gradients(batch)
        except Exception:  # backward is compiled too, when it first runs
            traceback.print_exc()
            if not self.model.compiled():
                raise
            print("torch.compile failed, goes on without it", flush=True)
            self.model.compile_layers(False)
            return self.step(batch, figures)
        self.clip_gradients()
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.plan.learning_rate(self.new_steps)
            optimizer.step()
        self.new_steps += 1
        if not figures:
            return {}
        spoken = said.losses[said.kinds >= ANSWER]
        families = answer_figures(said.logits, said.losses, said.targets, said.counts // batch.positions.shape[1],
                                  batch.answers[:, 1:].ravel()[said.counts])
        return {"loss": round(said.loss.item(), 4), "answer_loss": round(spoken.mean().item(), 4) if spoken.numel() else None,
                "families": families, "missed": {which: round(lost.item(), 4) for which, lost in said.missed.items()}}

    def log(self, line: dict) -> None:
        with (self.out / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        right = " ".join(f"{family} {figures['right']:.2f}" for family, figures in line["families"].items())
        missed = "".join(f"  missed of {which} {lost:.2f}" for which, lost in line["missed"].items())
        print(f"{line['seconds']:7.0f} s  stage {line['stage']} T {line['T']}  step {line['step']}  "
              f"{line['tokens'] / 1e6:.1f} M tokens ({line['tokens_per_second'] / 1e3:.0f} K/s, data waited for "
              f"{100 * line['data_wait']:.0f} % of the time)  answer loss {line['answer_loss']}{missed}  right: {right}", flush=True)

    def train(self) -> None:
        count = sum(p.numel() for p in self.model.parameters())
        print(f"{count / 1e6:.2f} M parameters, vocabulary {self.model.shape.vocabulary}, {len(self.sentences)} sentences, "
              f"{self.device}, {self.options.workers} data processes", flush=True)
        saved = time.monotonic()
        while not self.plan.done() and not stopping():
            self.fit_plan()
            self.train_stage(saved)
            if self.plan.stage_done():
                self.plan.next_stage()
            self.save()
            saved = time.monotonic()
        self.batches.close()
        print("finished" if self.plan.done() else "stopped; the same command goes on", flush=True)

    def fit_plan(self) -> None:
        """At a stage's start, and when its shape is compiled."""
        if self.options.within:
            self.plan.fit(60 * self.options.within - (time.monotonic() - BEGAN) - LAST_SAVE)

    def train_stage(self, saved: float) -> None:
        s, number = self.plan.state, self.plan.state["stage"]
        stage = self.plan.stages[number]
        self.batches.start(stage, f"train-{self.config['seed']}-{number}", s["batch"])
        mark, waited, tokens, steps = time.monotonic(), self.batches.waited, s["tokens"], 0
        while not self.plan.stage_done() and not stopping():
            began = time.monotonic()
            figures = (s["step"] + 1) % self.config["log_every"] == 0
            # A stage's shape is compiled in its first steps, which is no time that it learns in; not if it fails either.
            compiling = self.model.compiled() and steps < 3
            line = self.step(self.batches.get(), figures)  # with figures it waits for the device
            self.plan.advance(0.0 if compiling else time.monotonic() - began, stage["T"] * stage["B"])
            steps += 1
            (self.out / "beat").touch()
            if steps == 3:
                self.fit_plan()
            if figures:
                self.check_gradients(self.config["log_every"])
                now = time.monotonic()
                if math.isfinite(line["loss"]):  # else the gradient was none either
                    self.log({**s, **line, "T": stage["T"], "lr": self.optimizers[0].param_groups[0]["lr"],
                              "tokens_per_second": round((s["tokens"] - tokens) / (now - mark)),
                              "data_wait": round((self.batches.waited - waited) / (now - mark), 4)})
                mark, waited, tokens = now, self.batches.waited, s["tokens"]
            asked = self.out / "save-now"
            if time.monotonic() - saved > 60 * self.config["save_minutes"] or asked.exists():
                self.save()
                asked.unlink(missing_ok=True)
                saved = time.monotonic()


def main() -> None:
    options = parse()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda got, _: _signals.append(got))
    config = read_config(HERE / "tiny.json" if options.tiny else Path(options.config), options.minutes, options.within)
    if not torch.cuda.is_available():
        if "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(len(os.sched_getaffinity(0)))
        attention_cpu.build()
    with contextlib.suppress(BrokenPipeError):
        Trainer(options, config).train()


if __name__ == "__main__":
    main()
