"""Accuracy against what a decode step reads of host memory, from a run folder of `tandem compare`: a table and a plot.

  python3 scripts/plot_tradeoff.py RUN_FOLDER [PLOT.svg] [--length N] [--lines OPTION]

Bytes from host memory per token: what the CPU reads there, and what crosses the link to the device. The first method of
the run, its baseline, is drawn as a line. A method dominates another one that reads no less and is no more accurate.
--length: that context length alone. --lines: methods that differ in this option alone are joined by a line.
Without PLOT.svg: the table alone. Where the run has errors.json (--head-errors), the table has the heads' mean error.
"""
import argparse
import json
import pathlib
import sys

COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]  # Okabe and Ito's palette


def options_of(label):
    name, _, rest = label.partition(":")
    pairs = [part.partition("=") for part in rest.split(",") if part]
    return name, {key: pathlib.Path(value).stem if "/" in value else value for key, _, value in pairs}


def short_name(label, joined):
    """The options that tell methods apart, without what all of a family share."""
    name, options = options_of(label)
    if joined and joined in options:
        return options[joined]
    return ", ".join(f"{k}={v}" for k, v in options.items()) or name


def rows_of(folder, length):
    run = json.loads((folder / "summary.json").read_text())
    errors = {}
    if (folder / "errors.json").is_file():
        for entry in json.loads((folder / "errors.json").read_text())["methods"]:
            if entry["heads"]:
                errors[entry["method"]] = entry["error"] / entry["heads"]
    rows = []
    for method in run["methods"]:
        accuracy, latency = method["overall"], method["latency"]
        if length:
            accuracy = next((c for c in method["lengths"] if c["length"] == length), None)
            latency = next((c for c in method["latency_by_length"] if c["length"] == length), None)
            if accuracy is None or latency is None:
                sys.exit(f"plot_tradeoff.py: {folder} has no length {length}.")
        read = latency["bytes_per_step"]
        rows.append({"label": method["method"], "accuracy": 100 * accuracy["accuracy"],
                     "interval": [100 * x for x in accuracy["interval"]], "n": accuracy["n"],
                     "difference": [100 * x for x in (accuracy["difference"]["value"], *accuracy["difference"]["interval"])]
                     if "difference" in accuracy else None,
                     "host_bytes": read["dram"] + read["h2d"], "tpot_ms": latency["tpot_ms"],
                     "error": None if length else errors.get(method["method"])})
    return run, rows


def dominated_by(row, rows):
    """Methods that are at least as good in both and better in one."""
    return [o["label"] for o in rows if o["accuracy"] >= row["accuracy"] and o["host_bytes"] <= row["host_bytes"] and
            (o["accuracy"] > row["accuracy"] or o["host_bytes"] < row["host_bytes"])]


def print_table(run, rows):
    print(f"| method | accuracy % (n = {rows[0]['n']}) | difference to {rows[0]['label']}, points [95 %] | KB from host memory "
          f"/ token | mean error of heads % | TPOT ms, {run['clock']} | dominated by |")
    print("|---|---:|---:|---:|---:|---:|---|")
    for row in rows:
        difference = "" if row["difference"] is None else "{:+.1f} [{:+.1f}, {:+.1f}]".format(*row["difference"])
        error = "" if row["error"] is None else f"{100 * row['error']:.2f}"
        better = dominated_by(row, rows[1:]) if row is not rows[0] else []
        print(f"| {row['label']} | {row['accuracy']:.1f} | {difference} | {row['host_bytes'] / 1024:.1f} | {error} | "
              f"{row['tpot_ms']:.4f} | {'; '.join(better)} |")


def draw(run, rows, target, joined):
    try:
        import matplotlib
        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        sys.exit("matplotlib is missing (Debian package python3-matplotlib).")
    plt.rcParams.update({"font.size": 9, "svg.hashsalt": "tandem", "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(figsize=(8, 5), constrained_layout=True)
    base, others = rows[0], rows[1:]
    axes.axhline(base["accuracy"], color="#4D4D4D", linestyle="--", linewidth=1, label=base["label"])
    families = {}
    for row in others:
        name, options = options_of(row["label"])
        rest = {k: v for k, v in options.items() if k != joined}
        if joined == "heads":  # a file for each, named after what differs
            rest.pop("tau", None)
        key = (name, tuple(sorted(rest.items()))) if joined and joined in options else (name, None)
        families.setdefault(key, []).append(row)
    names = [key[0] for key in families]
    for i, (key, points) in enumerate(families.items()):
        points.sort(key=lambda r: r["host_bytes"])
        style = "o-" if key[1] is not None else "o"
        label = key[0] if names.count(key[0]) == 1 or not key[1] else key[0] + ": " + ", ".join(f"{k}={v}" for k, v in key[1])
        axes.plot([p["host_bytes"] / 1024 for p in points], [p["accuracy"] for p in points], style, color=COLOURS[i % len(COLOURS)],
                  linewidth=1, markersize=5, label=label)
        for p in points:
            axes.annotate(short_name(p["label"], joined), (p["host_bytes"] / 1024, p["accuracy"]), xytext=(5, -10),
                          textcoords="offset points", fontsize=7, color=COLOURS[i % len(COLOURS)])
    axes.set_xscale("log", base=2)
    axes.set_xlabel("KB read from host memory per token (CPU and link)", loc="left")
    axes.set_ylabel(f"accuracy, % (n = {base['n']})")
    axes.grid(color="#E5E5E5")
    axes.set_axisbelow(True)
    axes.set_title(f"{run['benchmark'].upper()}, {run['model']}, {run['clock']}", fontsize=9, loc="left")
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    figure.savefig(target, metadata={"Date": None} if str(target).endswith(".svg") else None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument("plot", type=pathlib.Path, nargs="?")
    parser.add_argument("--length", type=int)
    parser.add_argument("--lines", help="an option of the methods")
    options = parser.parse_args()
    try:
        run, rows = rows_of(options.run, options.length)
        print_table(run, rows)
        if options.plot:
            draw(run, rows, options.plot, options.lines)
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"plot_tradeoff.py: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
