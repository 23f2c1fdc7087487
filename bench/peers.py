#!/usr/bin/env python3
"""Whole-model speed beside other engines on this machine's CPU: Tandem, Hugging Face transformers, llama.cpp.

The same weights in bf16, the same number of threads, one engine after the other, round after round, so that a slow spell of
the machine hits all of them. Prints medians, spreads and ratios; exit code 0 all targets met, 1 one missed, 2 bad usage, 3 a
run failed or the machine was too busy to judge. bench/README.md says how to make the models and build llama.cpp.

The measured part of each engine:
  decode    the mean of --steps single-token steps behind --context tokens of KV
  prefill   tokens per second of --tokens tokens into an empty KV cache
The first decode step, loading and one warm-up are not counted. Needs Python 3.9, nothing else.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORKER = Path(__file__).resolve().parent / "peers_transformers.py"
ENGINES = ("tandem", "transformers", "llama.cpp")
# Tandem's tokens per second over the other's, at least.
TARGETS = {("decode", "transformers"): 1.5, ("decode", "llama.cpp"): 1.1, ("prefill", "llama.cpp"): 1.0}


def fail(code, sentence):
    print(f"peers.py: {sentence}", file=sys.stderr)
    sys.exit(code)


def tokens(text):
    """4096, 4K -> 4096."""
    try:
        value = int(text[:-1]) * 1024 if text[-1:] in "kK" else int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of tokens: write 8192 or 8K")
    return value


def busy_seconds():
    """CPU seconds that all processes of the machine have used so far, those taken by a hypervisor included."""
    fields = [int(x) for x in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields[:8]
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


class Others:
    """CPUs that other processes kept busy while a block ran: the machine's use less that of our children."""

    def __enter__(self):
        self.wall, self.busy, self.own = time.monotonic(), busy_seconds(), self.children()
        return self

    def __exit__(self, *_):
        wall = time.monotonic() - self.wall
        self.cpus = max(0.0, (busy_seconds() - self.busy - (self.children() - self.own)) / wall)

    @staticmethod
    def children():
        used = os.times()
        return used.children_user + used.children_system + used.user + used.system


def run(command, environment=None):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        fail(3, f"'{' '.join(map(str, command))}' ended with {done.returncode}: {done.stderr.strip()[-600:]}")
    return done.stdout


def pinned_threads(threads):
    """One thread pool of this size, whatever library asks."""
    return {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}


def run_tandem(o, what):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        amount = ["--context", o.context, "--steps", o.steps] if what == "decode" else ["--tokens", o.tokens]
        command = [o.tandem, "bench", what, *amount, "--model", o.model, "--threads", o.threads, "--rounds", 1]
        run([*command, "--quiet", "--out", out])
        return json.loads(out.read_text())["tokens_per_second"]


def run_transformers(o, what):
    amount = [o.context, o.steps] if what == "decode" else [o.tokens, 0]
    text = run([o.python, WORKER, o.model, what, *amount, o.threads], pinned_threads(o.threads))
    return json.loads(text.splitlines()[-1])["tokens_per_second"]


def run_llama(o, what):
    amount = ["-p", 0, "-n", o.steps, "-d", o.context] if what == "decode" else ["-p", o.tokens, "-n", 0]
    command = [o.llama_bench, "-m", o.gguf, "-t", o.threads, "-r", 1, "-o", "json", *amount, *o.llama_options.split()]
    return json.loads(run(command, pinned_threads(o.threads)))[0]["avg_ts"]


RUNNERS = {"tandem": run_tandem, "transformers": run_transformers, "llama.cpp": run_llama}


def wait_for_quiet(o):
    """Until others use no more than --noise CPUs for a second, --wait seconds at most."""
    end = time.monotonic() + o.wait
    while time.monotonic() < end:
        with Others() as others:
            time.sleep(1)
        if others.cpus <= o.noise:
            return


def measure(o, what, engines):
    """engine -> [tokens per second of each round], and the CPUs that others used meanwhile."""
    figures, noise = {engine: [] for engine in engines}, []
    for n in range(o.rounds):
        turn = engines[n % len(engines):] + engines[: n % len(engines)]  # nobody is always first
        for engine in turn:
            wait_for_quiet(o)
            with Others() as others:
                figures[engine].append(RUNNERS[engine](o, what))
            noise.append(others.cpus)
            print(f"  round {n + 1} {what:8}{engine:13}{figures[engine][-1]:9.2f} tokens/s"
                  f"   (others: {others.cpus:.2f} CPUs)", file=sys.stderr)
    return figures, noise


def report(o, what, figures):
    """Prints one table; returns the targets that were missed."""
    amount = f"behind {o.context} tokens, {o.steps} steps" if what == "decode" else f"{o.tokens} tokens"
    print(f"\n{what} {amount}, {o.threads} threads, {o.rounds} alternating rounds\n")
    print("| engine | tokens/s, median | least | most | spread % | ms per token | Tandem is x times as fast | target |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    own = statistics.median(figures["tandem"]) if "tandem" in figures else None
    missed = []
    for engine, values in figures.items():
        middle = statistics.median(values)
        ratio = own / middle if own and engine != "tandem" else None
        target = TARGETS.get((what, engine))
        if ratio is not None and target is not None and ratio < target:
            missed.append(f"{what}: {ratio:.2f} times {engine}, not {target}")
        print(f"| {engine} | {middle:.2f} | {min(values):.2f} | {max(values):.2f} "
              f"| {100 * (max(values) - min(values)) / middle:.1f} | {1e3 / middle:.3f} "
              f"| {'' if ratio is None else f'{ratio:.2f}'} | {'' if ratio is None or target is None else target} |")
    return missed


def parse(arguments):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", type=Path, required=True, help="Hugging Face folder, bf16: for Tandem and transformers")
    p.add_argument("--gguf", type=Path, help="the same weights for llama.cpp (convert_hf_to_gguf.py --outtype bf16)")
    p.add_argument("--llama-bench", type=Path, help="llama.cpp's llama-bench program")
    p.add_argument("--llama-options", default="", help="more options of llama-bench, for its best: '-ctk bf16 -ctv bf16'")
    p.add_argument("--python", type=Path, help="a Python that has torch and transformers")
    p.add_argument("--tandem", type=Path, default=ROOT / "build/release/bin/tandem", help="%(default)s")
    p.add_argument("--engines", default=",".join(ENGINES), help="which of %(default)s")
    p.add_argument("--what", default="decode,prefill", help="which of %(default)s")
    p.add_argument("--context", type=tokens, default=8192, help="tokens before the decode (%(default)s)")
    p.add_argument("--steps", type=tokens, default=32, help="decode steps per round (%(default)s)")
    p.add_argument("--tokens", type=tokens, default=4096, help="tokens of the prefill (%(default)s)")
    p.add_argument("--threads", type=int, default=2, help="of each engine (%(default)s)")
    p.add_argument("--rounds", type=int, default=5, help="of every engine (%(default)s)")
    p.add_argument("--noise", type=float, default=0.15,
                   help="CPUs that other processes may use in the median run; above it nothing is judged (%(default)s)")
    p.add_argument("--wait", type=float, default=0, help="seconds to wait for a quiet machine before each run (%(default)s)")
    p.add_argument("--out", type=Path, help="all rounds as JSON")
    o = p.parse_args(arguments)
    o.engines, o.what = o.engines.split(","), o.what.split(",")
    for name, known in [(n, ENGINES) for n in o.engines] + [(n, ("decode", "prefill")) for n in o.what]:
        if name not in known:
            p.error(f"'{name}' is none of {', '.join(known)}")
    if o.rounds < 1 or o.threads < 1:
        p.error("--rounds and --threads are at least 1")
    needed = {"tandem": [("--tandem", o.tandem)], "transformers": [("--python", o.python)],
              "llama.cpp": [("--llama-bench", o.llama_bench), ("--gguf", o.gguf)]}
    for option, path in [("--model", o.model)] + [pair for engine in o.engines for pair in needed[engine]]:
        if path is None or not path.exists():
            p.error(f"{option} is {path or 'missing'}: give a path that exists, or leave the engine out with --engines")
    return o


def main(arguments):
    o = parse(arguments)
    results, noise, missed = {}, [], []
    for what in o.what:
        results[what], others = measure(o, what, o.engines)
        noise += others
    for what, figures in results.items():
        missed += report(o, what, figures)
    others = statistics.median(noise)
    print(f"\nOther processes used {others:.2f} CPUs in the median run, {max(noise):.2f} at most.")
    if o.out:
        o.out.write_text(json.dumps({"threads": o.threads, "context": o.context, "steps": o.steps, "tokens": o.tokens,
                                     "others_cpus": noise, "tokens_per_second": results}, indent=1) + "\n")
    if others > o.noise:
        fail(3, f"No judgement: others used {others:.2f} CPUs, more than {o.noise}. Measure on a quiet machine.")
    if missed:
        fail(1, f"Targets missed: {'; '.join(missed)}.")


if __name__ == "__main__":
    main(sys.argv[1:])
