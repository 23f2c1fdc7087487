"""Accuracy against what a decode step reads of host memory, from a run folder of `tandem compare`: a table and a plot.

  python3 studies/scripts/plot_tradeoff.py RUN_FOLDER [PLOT.svg] [--length N] [--lines OPTION...] [--json FILE]
  python3 studies/scripts/plot_tradeoff.py RUN_FOLDER --by-length [--json FILE]
  python3 studies/scripts/plot_tradeoff.py FILE.json PLOT.svg [--lines OPTION...]        the plot again, from what --json wrote

Bytes from host memory per token: what the CPU reads there, and what crosses the link to the device. Of several lengths, bytes and
TPOT are means of the lengths' means, so that a length weighs the same whatever a method generated there. The first method of the
run, its baseline, is drawn as a line. A method dominates another one that reads no less and is no more accurate.
--length: that context length alone. --json: the table's numbers, how the run was made, and all lengths.
--by-length: a table with a row for each length and one for all; the second method of the run has its difference to the
first, and how many samples the first alone has right (lost) and how many it alone has (gained).
 --lines: methods that differ in one of these options alone are joined by a line.
Without PLOT.svg: the table alone. Where the run has errors.json (--head-errors), the table has the heads' mean error.
"""
import argparse
import json
import pathlib
import sys

from run_tables import figure_text, latency_of, weights_note  # adds the folder of safe_files, too
from safe_files import cleaned, markdown_text, printable, read_bytes, read_json


def options_of(label):
    """Name and options of a method, without where its head properties come from."""
    name, _, rest = label.partition(":")
    pairs = [part.partition("=") for part in rest.split(",") if part]
    return name, {key: value for key, _, value in pairs if key != "heads" or value == "oracle"}


def text_of(options):
    return ", ".join(f"{k}={v}" for k, v in options.items())


def kept_rows(file):
    """(run, rows) of what --json wrote."""
    kept = read_json(file)
    return {**kept["made"], "benchmark": kept["made"]["protocol_id"].partition("/")[0]}, kept["methods"]


def rows_of(folder, length):
    run = read_json(folder / "summary.json")
    errors = {}
    if (folder / "errors.json").exists():
        for entry in read_json(folder / "errors.json")["methods"]:
            if entry["heads"]:
                errors[entry["method"]] = entry["error"] / entry["heads"]
    rows = []
    for method in run["methods"]:
        accuracy, latency = method["overall"], latency_of(method)
        if length:
            accuracy = next((c for c in method["lengths"] if c["length"] == length), None)
            latency = next((c for c in method["latency_by_length"] if c["length"] == length), None)
            if accuracy is None or latency is None:
                sys.exit(f"plot_tradeoff.py: {folder} has no length {length}.")
        read = latency.get("bytes_per_token") or latency["bytes_per_step"]  # its name before schema version 7
        rows.append({"label": method["method"], "accuracy": 100 * accuracy["accuracy"],
                     "interval": [100 * x for x in accuracy["interval"]], "n": accuracy["n"],
                     "difference": [100 * x for x in (accuracy["difference"]["value"], *accuracy["difference"]["interval"])]
                     if "difference" in accuracy else None,
                     "host_bytes": read["dram"] + read["h2d"], "tpot_ms": latency["tpot_ms"] or None,
                     "error": None if length else errors.get(method["method"])})
    return run, rows


def lost_and_gained(folder):
    """By length, and under None for all: samples that the first method alone has right, and the second alone."""
    methods = [m["method"] for m in read_json(folder / "summary.json")["methods"]]
    if len(methods) < 2:
        sys.exit(f"plot_tradeoff.py: {folder} has one method alone; --by-length compares the first two.")
    first, second = methods[:2]
    scores = {}
    for line in read_bytes(folder / "samples.jsonl").splitlines():
        sample = cleaned(json.loads(line))
        key = sample["task"], sample["length"], sample["index"]
        scores.setdefault(key, {})[sample["method"]] = sample["score"]
    counts = {}
    for (_, length, _), score in scores.items():
        for at in (length, None):
            lost, gained = counts.get(at, (0, 0))
            counts[at] = lost + (score[first] > score[second]), gained + (score[first] < score[second])
    return counts


def print_by_length(folder, counts):
    lengths = sorted(length for length in counts if length is not None)
    names = [markdown_text(row["label"]) for row in rows_of(folder, None)[1]]
    print(f"| length | n | {names[0]} % | {names[1]} % | difference, points [95 %] | lost, gained | "
          + "".join(f"{name} % | " for name in names[2:])
          + "KiB from host memory / token: " + " | ".join(names[1:]) + " |")
    print("|---|" + "---:|" * (5 + 2 * len(names[2:]) + 1))
    for length in [*lengths, None]:
        base, method, *others = rows_of(folder, length)[1]
        cells = ["all" if length is None else f"{length // 1024}K" if length % 1024 == 0 else length, base["n"],
                 f"{base['accuracy']:.1f}", f"{method['accuracy']:.1f}", "{:+.1f} [{:+.1f}, {:+.1f}]".format(*method["difference"]),
                 "{}, {}".format(*counts[length]), *(f"{row['accuracy']:.1f}" for row in others),
                 *(f"{row['host_bytes'] / 1024:.0f}" for row in (method, *others))]
        print("| " + " | ".join(map(str, cells)) + " |")
    print(weights_note(rows_of(folder, None)[0]), end="")


def dominated_by(row, rows):
    """Methods that are at least as good in both and better in one."""
    return [o["label"] for o in rows if o["accuracy"] >= row["accuracy"] and o["host_bytes"] <= row["host_bytes"] and
            (o["accuracy"] > row["accuracy"] or o["host_bytes"] < row["host_bytes"])]


def print_table(run, rows, length):
    print(f"| method | accuracy % (n = {rows[0]['n']}) | difference to {markdown_text(rows[0]['label'])}, points [95 %] | KiB from host memory "
          f"/ token | mean error of heads % | TPOT ms, {markdown_text(run['clock'])} | dominated by |")
    print("|---|---:|---:|---:|---:|---:|---|")
    for row in rows:
        difference = "" if row["difference"] is None else "{:+.1f} [{:+.1f}, {:+.1f}]".format(*row["difference"])
        error = "" if row["error"] is None else f"{100 * row['error']:.2f}"
        better = dominated_by(row, rows[1:]) if row is not rows[0] else []
        print(f"| {markdown_text(row['label'])} | {row['accuracy']:.1f} | {difference} | {row['host_bytes'] / 1024:.1f} | {error} | "
              f"{figure_text(row['tpot_ms'], 4)} | {'; '.join(map(markdown_text, better))} |")
    if not length:
        print(weights_note(run, "Bytes and TPOT"), end="")


def write_json(folder, target, rows, counts):
    manifest = read_json(folder / "manifest.json")
    made = {k: manifest[k] for k in ("command", "git_commit", "model", "weights_hash", "tasks", "lengths", "samples", "seed", "protocol_id",
                                     "clock", "machine", "isa") if k in manifest}
    by_length = {str(n): rows_of(folder, n)[1] for n in manifest["lengths"]}
    table = {"made": made, "methods": rows, "lengths": by_length}
    if counts:
        table["lost_and_gained"] = {"all" if n is None else str(n): pair for n, pair in counts.items()}
    target.write_text(json.dumps(table, indent=1) + "\n")


def draw(run, rows, target, joined):
    from plotting import FAINT, GREY, line_styles, plt
    figure, axes = plt.subplots(figsize=(8, 5), constrained_layout=True)
    base, others = rows[0], rows[1:]
    if not others:
        sys.exit(f"plot_tradeoff.py: the run has one method, {base['label']}: there is nothing to draw beside it.")
    axes.axhline(base["accuracy"], color=GREY, linestyle="--", linewidth=1, label=base["label"])
    families = {}  # methods that differ in an option of --lines alone; the others of a name together
    for row in others:
        name, options = options_of(row["label"])
        varied = next((k for k in joined if k in options), None)
        rest = text_of({k: v for k, v in options.items() if k != varied}) if varied else ""
        families.setdefault((name, varied, rest), []).append((row, options.get(varied) or text_of(options) or name))
    styles = line_styles(f"{name}:{varied},{rest}" for name, varied, rest in families).values()
    for i, ((name, varied, rest), points) in enumerate(families.items()):
        style = list(styles)[i]
        points.sort(key=lambda p: p[0]["host_bytes"])
        at = [p["host_bytes"] / 1024 for p, _ in points], [p["accuracy"] for p, _ in points]
        axes.plot(*at, **(style | {"linestyle": "-" if varied else "none", "linewidth": 1}),
                  label=name + (f", {rest}" if rest else "") + (f", by {varied}" if varied else ""))
        for n, (x, y, (_, label)) in enumerate(zip(*at, points)):
            below = (i if varied else n) % 2 == 1
            axes.annotate(label, (x, y), xytext=(0, -5 if below else 5), textcoords="offset points", fontsize=7, color=style["color"],
                          ha="center" if varied else "left", va="top" if below else "bottom",
                          rotation=0 if varied else -30 if below else 30, rotation_mode="anchor")
    reads = [row["host_bytes"] / 1024 for row in others]
    if max(reads) > 4 * min(reads) > 0:  # a method that reads nothing has no place on a logarithmic axis
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:.0f}")
    found = [row["accuracy"] for row in rows]
    middle, span = (max(found) + min(found)) / 2, max(6.0, 0.6 * (max(found) - min(found)))
    axes.set_ylim(middle - span, middle + span)
    axes.margins(x=0.15)
    axes.set_xlabel("KiB read from host memory per token (CPU and link)", loc="left")
    axes.set_ylabel(f"accuracy, % (n = {base['n']})")
    axes.grid(color=FAINT)
    axes.set_axisbelow(True)
    axes.set_title(f"{run['benchmark'].upper()}, {run['model']}, {run['clock']}", fontsize=9, loc="left")
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.savefig(target, bbox_inches="tight", metadata={"Date": None} if str(target).endswith(".svg") else None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument("plot", type=pathlib.Path, nargs="?")
    parser.add_argument("--length", type=int)
    parser.add_argument("--by-length", action="store_true")
    parser.add_argument("--json", type=pathlib.Path, help="file for the table's numbers")
    parser.add_argument("--lines", nargs="+", default=[], help="options of the methods")
    options = parser.parse_args()
    if options.run.is_file() and (options.plot is None or options.json or options.length or options.by_length):
        parser.error("a file of --json gives its plot alone: name PLOT.svg, and no other option but --lines.")
    try:
        if options.run.is_file():
            draw(*kept_rows(options.run), options.plot, options.lines)
            return
        run, rows = rows_of(options.run, options.length)
        counts = lost_and_gained(options.run) if options.by_length else None
        if counts:
            print_by_length(options.run, counts)
        else:
            print_table(run, rows, options.length)
        if options.json:
            write_json(options.run, options.json, rows, counts)
        if options.plot:
            draw(run, rows, options.plot, options.lines)
    except (OSError, ValueError, KeyError) as error:
        sys.exit(printable(f"plot_tradeoff.py: {type(error).__name__}: {error}"))


if __name__ == "__main__":
    main()
