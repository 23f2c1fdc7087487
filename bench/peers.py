#!/usr/bin/env python3
"""Whole-model speed beside other engines on this machine's CPU: Tandem, OpenVINO GenAI, Hugging Face transformers, llama.cpp.

The same weights in bf16, the same number of threads, one engine after the other, round after round, so that a slow spell of
the machine hits all of them. Prints medians, spreads and ratios; exit code 0 all targets met, 1 one missed, 2 bad usage, 3 a
run failed or the machine was too busy to judge. Engines whose options are missing are left out. Of options that change an
engine's speed the fastest are found first, at each length. bench/README.md says which programs are needed, and how the models
are made.

What is measured of each engine, in a process of its own each time:
  decode    the mean of --steps single-token steps behind each length of --decode
  prefill   tokens per second of each length of --prefill into an empty KV cache
  batch     Tandem alone: --batch sequences behind --batch-context tokens each
  load      seconds until the weights are ready, as the engine tells them, beside reading the file twice
  memory    the most that was resident, mapped files included
The first decode step (but llama.cpp's), loading and a warm-up are in no rate. Needs Python 3.9, nothing else.
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
BENCH = Path(__file__).resolve().parent
ENGINES = ("tandem", "openvino", "transformers", "llama.cpp")
# Tandem's tokens per second over the fastest other engine's, at least.
TARGETS = {("decode", 512): 1.3, ("decode", 8192): 1.7, ("prefill", 4096): 1.0, ("prefill", 16384): 1.0}
BATCH_TARGET = {(4, 512): 2.5}  # (sequences, context): tokens per second over one sequence's
READS = 2  # loading takes no longer than reading the file so often
SPARE_BYTES = 300e6  # resident beside weights and KV, at most
# Options of which the fastest is found first: at each length, with few steps.
TRIES = {"openvino": [["PA"], ["SDPA"]],
         "llama.cpp": [["-fa", attention, "-ctk", kv, "-ctv", kv] for attention in ("0", "1") for kv in ("f16", "bf16")]}
TRY_STEPS, TRY_PREFILL = 8, 4096


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


def lengths(text):
    """512,8K -> [512, 8192]; empty: none."""
    return [tokens(part) for part in text.split(",")] if text else []


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
    """What the program wrote to stdout, and the most bytes it had resident."""
    command = [str(c) for c in command]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        try:
            process = subprocess.Popen(command, stdout=out, stderr=err, env=environment)
        except OSError as error:
            fail(3, f"'{command[0]}' does not start: {error.strerror}")
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode != 0:
            fail(3, f"'{' '.join(command)}' ended with {process.returncode}: {err.read().strip()[-600:]}")
        return out.read(), used.ru_maxrss * 1024


def pinned_threads(threads):
    """One thread pool of this size, whatever library asks."""
    return {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}


def understood(engine, read):
    """What `read` makes of an engine's answer."""
    try:
        return read()
    except (ValueError, LookupError, TypeError) as error:
        fail(3, f"what {engine} answers is not understood ({type(error).__name__}: {error}): is it one of the versions in "
                "bench/README.md?")


def run_tandem(o, what, length, steps, _options, batch=1):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        amount = ["--context", length, "--steps", steps] if what == "decode" else ["--tokens", length]
        if batch > 1:
            amount += ["--batch", batch]
        command = [o.tandem, "bench", what, *amount, "--model", o.model, "--threads", o.threads, "--rounds", 1]
        run([*command, "--quiet", "--out", out])
        told = json.loads(out.read_text())
    # Its own figure of memory, taken before it reads the weight files once more to see whether they changed.
    return {"tokens_per_second": told["rows"][0]["tokens_per_second"], "load_seconds": told["loading"]["seconds"],
            "peak_rss_bytes": told["memory"]["peak_bytes"], "weight_bytes": told["memory"]["weight_bytes"],
            "kv_bytes": told["memory"]["device_kv_bytes"] + told["memory"]["host_kv_bytes"],
            "versions": {"tandem": told["tandem_version"], "commit": told["git_commit"], "isa": told["isa"]}}


def run_worker(o, command, what, length, steps, options):
    amount = [length, steps if what == "decode" else 0]
    text, _ = run([*command, what, *amount, o.threads, *options], pinned_threads(o.threads))
    return json.loads(text.splitlines()[-1])


def run_openvino(o, what, length, steps, options):
    python = o.openvino_python or o.python
    return run_worker(o, [python, BENCH / "peers_openvino.py", o.openvino], what, length, steps, options)


def run_transformers(o, what, length, steps, options):
    return run_worker(o, [o.python, BENCH / "peers_transformers.py", o.model], what, length, steps, options)


def run_llama(o, what, length, steps, options):
    amount = ["-p", 0, "-n", steps, "-d", length] if what == "decode" else ["-p", length, "-n", 0]
    command = [o.llama_bench, "-m", o.gguf, "-t", o.threads, "-r", 1, "-o", "json", *amount, *options]
    text, peak = run([*command, *o.llama_options.split()], pinned_threads(o.threads))
    told = json.loads(text)[0]
    return {"tokens_per_second": told["avg_ts"], "load_seconds": None, "peak_rss_bytes": peak,  # it tells no load time
            "versions": {"commit": told.get("build_commit"), "build": told.get("build_number")}}


RUNNERS = {"tandem": run_tandem, "openvino": run_openvino, "transformers": run_transformers, "llama.cpp": run_llama}


def measured(o, engine, what, length, steps, options, **more):
    return understood(engine, lambda: RUNNERS[engine](o, what, length, steps, options, **more))


def best_options(o, engine, what, length):
    """The fastest of the engine's TRIES at this length, or at TRY_PREFILL tokens of a longer prompt."""
    if engine not in TRIES:
        return []
    if what == "prefill":
        length = min(length, TRY_PREFILL)
    case = (engine, what, length)
    if case not in o.best:
        rates = []
        for options in TRIES[engine]:
            wait_for_quiet(o)
            rates.append(measured(o, engine, what, length, min(o.steps, TRY_STEPS), options)["tokens_per_second"])
            print(f"  {engine} {what} {length} with {' '.join(options)}: {rates[-1]:.2f} tokens/s", file=sys.stderr)
        o.best[case] = TRIES[engine][rates.index(max(rates))]
    return o.best[case]


def read_seconds(folder):
    """Reading the weight files once, from wherever the system has them."""
    buffer = bytearray(16 << 20)
    began = time.monotonic()
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
    return time.monotonic() - began


def wait_for_quiet(o):
    """Until others use no more than --noise CPUs for a second, --wait seconds at most."""
    end = time.monotonic() + o.wait
    while time.monotonic() < end:
        with Others() as others:
            time.sleep(1)
        if others.cpus <= o.noise:
            return


def columns(o, what, length):
    """name -> (function that measures once, its options)."""
    named = {}
    for engine in o.engines:
        options = best_options(o, engine, what, length)
        named[engine] = (lambda e=engine, x=options: measured(o, e, what, length, o.steps, x), options)
        if engine == "tandem" and o.batch > 1 and what == "decode" and length == o.batch_context:
            named[f"tandem, batch {o.batch}"] = (lambda: measured(o, "tandem", what, length, o.steps, [], batch=o.batch), [])
    return named


def measure(o, what, length, noise):
    """One figure: every engine's rounds."""
    named = columns(o, what, length)
    rounds, reads = {name: [] for name in named}, []
    for n in range(o.rounds):
        names = list(named)
        for name in names[n % len(names):] + names[: n % len(names)]:  # nobody is always first
            wait_for_quiet(o)
            with Others() as others:
                rounds[name].append(named[name][0]())
            noise.append(others.cpus)
            print(f"  round {n + 1} {what:8}{length:6} {name:16}{rounds[name][-1]['tokens_per_second']:9.2f} tokens/s"
                  f"   (others: {others.cpus:.2f} CPUs)", file=sys.stderr)
        reads.append(read_seconds(o.model))
    engines = {name: summary(rounds[name], options) for name, (_, options) in named.items()}
    return {"what": what, "tokens": length, "read_seconds": reads, "engines": engines}


def summary(rounds, options):
    """Rounds of one engine as lists, with medians."""
    rates = [r["tokens_per_second"] for r in rounds]
    loads = [r["load_seconds"] for r in rounds if r["load_seconds"] is not None]
    out = {"options": " ".join(options), "median": statistics.median(rates), "tokens_per_second": rates,
           "load_seconds": loads, "load_median": statistics.median(loads) if loads else None,
           "peak_rss_bytes": max(r["peak_rss_bytes"] for r in rounds)}
    return {**out, **{key: rounds[0][key] for key in ("weight_bytes", "kv_bytes", "versions", "properties")
                      if key in rounds[0]}}


def verdict(name, value, target, least):
    return {"what": name, "value": value, "target": target, "met": value >= target if least else value <= target}


def judge_rates(figure):
    """Names the fastest other engine; the verdicts of a figure."""
    engines, what, length = figure["engines"], figure["what"], figure["tokens"]
    out, own = [], engines.get("tandem")
    peers = {name: s["median"] for name, s in engines.items() if not name.startswith("tandem")}
    if own and peers:
        figure["fastest_peer"] = fastest = max(peers, key=peers.get)
        figure["ratio"] = own["median"] / peers[fastest]
        if (what, length) in TARGETS:
            out.append(verdict(f"{what} {length}, times {fastest}", figure["ratio"], TARGETS[what, length], True))
    for (batch, context), target in BATCH_TARGET.items():
        together = engines.get(f"tandem, batch {batch}")
        if together and context == length:
            out.append(verdict(f"{what} {length}, batch {batch} times one sequence", together["median"] / own["median"],
                               target, True))
    return out


def judge_memory(figures):
    """Of all of Tandem's runs: loading, and the most memory beside weights and KV."""
    own = [s for f in figures for name, s in f["engines"].items() if name.startswith("tandem")]
    if not own:
        return []
    loading = statistics.median(x for s in own for x in s["load_seconds"])
    reading = statistics.median(x for f in figures for x in f["read_seconds"])
    spare = max(s["peak_rss_bytes"] - s["weight_bytes"] - s["kv_bytes"] for s in own)
    return [verdict("loading, times reading the files once", loading / max(reading, 1e-9), READS, False),
            verdict("peak memory beside weights and KV, MB", spare / 1e6, SPARE_BYTES / 1e6, False)]


def report(o, figure):
    """Prints one table."""
    what, length, engines = figure["what"], figure["tokens"], figure["engines"]
    amount = f"behind {length} tokens, {o.steps} steps" if what == "decode" else f"{length} tokens"
    print(f"\n{what} {amount}, {o.threads} threads, {o.rounds} alternating rounds\n")
    print("| engine | tokens/s, median | least | most | spread % | Tandem is x times as fast | load s | peak GB | options |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---|")
    for name, s in engines.items():
        rates = s["tokens_per_second"]
        ratio = engines["tandem"]["median"] / s["median"] if "tandem" in engines and not name.startswith("tandem") else None
        print(f"| {name} | {s['median']:.2f} | {min(rates):.2f} | {max(rates):.2f} "
              f"| {100 * (max(rates) - min(rates)) / s['median']:.1f} | {'' if ratio is None else f'{ratio:.2f}'} "
              f"| {'-' if s['load_median'] is None else '{:.2f}'.format(s['load_median'])} "
              f"| {s['peak_rss_bytes'] * 1e-9:.2f} | {s['options']} |")


def cpu_name():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"


def cpu_extensions():
    """Instruction sets that products in bf16 depend on: virtual machines hide the CPU's name."""
    wanted = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16")
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("flags", "Features")):
            return [name for name in wanted if name in line.split()]
    return []


def parse(arguments):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", type=Path, required=True, help="Hugging Face folder, bf16: for Tandem and transformers")
    p.add_argument("--openvino", type=Path, help="the same weights for OpenVINO (optimum-cli export openvino)")
    p.add_argument("--openvino-python", type=Path, help="a Python that has openvino-genai (default: that of --python)")
    p.add_argument("--python", type=Path, help="a Python that has torch and transformers")
    p.add_argument("--gguf", type=Path, help="the same weights for llama.cpp (convert_hf_to_gguf.py --outtype bf16)")
    p.add_argument("--llama-bench", type=Path, help="llama.cpp's llama-bench program")
    p.add_argument("--llama-options", default="", help="more options of llama-bench; -fa 0|1 and KV in f16|bf16 are tried out")
    p.add_argument("--tandem", type=Path, default=ROOT / "build/release/bin/tandem", help="%(default)s")
    p.add_argument("--engines", default=",".join(ENGINES), help="which of %(default)s")
    p.add_argument("--decode", type=lengths, default="512,8K", help="tokens before the decode (%(default)s); '': none")
    p.add_argument("--prefill", type=lengths, default="4K,16K", help="tokens of the prefill (%(default)s); '': none")
    p.add_argument("--steps", type=tokens, default=32, help="decode steps per round (%(default)s)")
    p.add_argument("--batch", type=int, default=4, help="Tandem's batch beside one sequence (%(default)s); 1: none")
    p.add_argument("--batch-context", type=tokens, default=512, help="the length of --decode where (%(default)s)")
    p.add_argument("--threads", type=int, default=2, help="of each engine (%(default)s)")
    p.add_argument("--rounds", type=int, default=5, help="of every engine (%(default)s)")
    p.add_argument("--noise", type=float, default=0.15,
                   help="CPUs that other processes may use in the median run; above it nothing is judged (%(default)s)")
    p.add_argument("--wait", type=float, default=0, help="seconds to wait for a quiet machine before each run (%(default)s)")
    p.add_argument("--out", type=Path, help="all rounds as JSON")
    o = p.parse_args(arguments)
    o.engines, o.best = o.engines.split(","), {}
    for name in o.engines:
        if name not in ENGINES:
            p.error(f"'{name}' is none of {', '.join(ENGINES)}")
    if min(o.rounds, o.threads, o.batch) < 1:
        p.error("--rounds, --threads and --batch are at least 1")
    if not o.decode and not o.prefill:
        p.error("--decode and --prefill are empty: give a length")
    needed = {"tandem": [("--tandem", o.tandem)], "transformers": [("--python", o.python)],
              "openvino": [("--openvino", o.openvino), ("--openvino-python", o.openvino_python or o.python)],
              "llama.cpp": [("--llama-bench", o.llama_bench), ("--gguf", o.gguf)]}
    for engine in list(o.engines):
        missing = [option for option, path in needed[engine] if path is None]
        if missing:
            print(f"{engine} is left out: {' and '.join(missing)} not given.", file=sys.stderr)
            o.engines.remove(engine)
    for option, path in [("--model", o.model)] + [pair for engine in o.engines for pair in needed[engine]]:
        if not path.exists():
            p.error(f"{option} is {path}: give a path that exists, or leave the engine out with --engines")
    if not o.engines:
        p.error("no engine is left to measure")
    if o.out and not o.out.resolve().parent.is_dir():
        p.error(f"--out is {o.out}: there is no such folder")
    return o


def write_result(o, figures, verdicts, noise):
    versions = {name: s["versions"] for figure in figures for name, s in figure["engines"].items() if "versions" in s}
    o.out.write_text(json.dumps({"schema": "tandem-peers-1", "cpu": cpu_name(), "cpu_extensions": cpu_extensions(),
                                 "cpus": os.cpu_count(), "threads": o.threads, "rounds": o.rounds, "steps": o.steps,
                                 "model": o.model.name, "versions": versions, "others_cpus": noise, "figures": figures,
                                 "verdicts": verdicts}, indent=1) + "\n")


def main(arguments):
    o = parse(arguments)
    figures, verdicts, noise = [], [], []
    for what, length in [("decode", n) for n in o.decode] + [("prefill", n) for n in o.prefill]:
        figures.append(measure(o, what, length, noise))
        verdicts = [v for figure in figures for v in judge_rates(figure)] + judge_memory(figures)
        if o.out:
            write_result(o, figures, verdicts, noise)  # a run that is ended leaves what it has
    for figure in figures:
        report(o, figure)
    print("\n| verdict | value | target | met |\n|---|---:|---:|---|")
    for v in verdicts:
        print(f"| {v['what']} | {v['value']:.2f} | {v['target']:g} | {'yes' if v['met'] else 'no'} |")
    others = statistics.median(noise)
    print(f"\nOther processes used {others:.2f} CPUs in the median run, {max(noise):.2f} at most.")
    if others > o.noise:
        fail(3, f"No judgement: others used {others:.2f} CPUs, more than {o.noise}. Measure on a quiet machine.")
    missed = [f"{v['what']}: {v['value']:.2f}, not {v['target']:g}" for v in verdicts if not v["met"]]
    if missed:
        fail(1, f"Targets missed: {'; '.join(missed)}.")


if __name__ == "__main__":
    main(sys.argv[1:])
