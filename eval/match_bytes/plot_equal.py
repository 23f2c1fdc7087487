"""Draws equal.png and equal.svg of a comparison at equal bytes: accuracy by the bytes that each method came to, as a share of full's,
from its equal.json and summary.json.

  python3 eval/match_bytes/plot_equal.py RUN_FOLDER
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "report"))
from plotting import FAINT, in_order, line_legend, line_styles, plt, read_json, run_script, save  # noqa: E402

BYTES = {"touched-bytes": ("bytes of the context that a step touches", lambda latency: latency["bytes_per_token"].get("touched")),
         "device-bytes": ("bytes kept on the device", lambda latency: latency["peak_kv_bytes"]["device"])}


def without(spec, option):
    """The method as it was given, but for the option that is set."""
    name, _, options = spec.partition(":")
    kept = [o for o in options.split(",") if o and o.partition("=")[0] != option]
    return name + (":" + ",".join(kept) if kept else "")


def lines_of(equal, run):
    """{method without what is set: [(share of the reference's bytes, accuracy, low, high)]}, in the order of the run's methods."""
    methods = {m["method"]: m for m in run["methods"]}
    measured = BYTES[equal["asked"].split("=")[0]][1]

    def bytes_of(method):
        return measured(method["latency"]) if method and method["latency"] else None

    whole = bytes_of(methods.get(equal["reference"])) or equal["reference_bytes"]
    lines = {}
    for entry in equal["as_given"] + [m for share in equal["shares"] for m in share["methods"]]:
        m = methods.get(entry["method"])
        if bytes_of(m) is None or not whole:
            continue
        overall = m["overall"]
        point = (bytes_of(m) / whole, overall["accuracy"], *overall["interval"])
        line = lines.setdefault(without(entry["given"], entry["option"]), [])
        if point not in line:
            line.append(point)
    return lines


def main(folder):
    equal, run = read_json(folder, "equal.json"), read_json(folder, "summary.json")
    lines = lines_of(equal, run)
    figure, axes = plt.subplots(figsize=(6.4, 4.4), constrained_layout=True)
    for method, style in line_styles(in_order(lines)).items():
        x, y, low, high = ([100 * p[k] for p in sorted(lines[method])] for k in range(4))
        axes.errorbar(x, y, yerr=[[a - b for a, b in zip(y, low)], [b - a for a, b in zip(y, high)]], capsize=2,
                      elinewidth=0.8, **style)
    for share in equal["shares"]:
        axes.axvline(100 * share["share"], color="#BBBBBB", linewidth=0.8, zorder=0)
    axes.set_xscale("log", base=2)
    ticks = sorted({100.0} | {100 * share["share"] for share in equal["shares"]})
    axes.set_xticks(ticks, [f"{tick:.3g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(0, 100)
    axes.set_xlabel(f"{BYTES[equal['asked'].split('=')[0]][0]}, % of what {equal['reference']} comes to", loc="left")
    axes.set_ylabel("accuracy, % (bars: 95 % interval)")
    axes.set_title(f"{run['model']}, {run['clock']}", fontsize=9, loc="left")
    axes.grid(axis="y", color=FAINT)
    axes.set_axisbelow(True)
    line_legend(figure, list(lines))
    save(figure, folder, "equal", bbox_inches="tight")


if __name__ == "__main__":
    run_script("eval/match_bytes/plot_equal.py", __doc__, main)
