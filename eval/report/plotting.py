"""Shared by all plots: matplotlib without a display, the look and the order of the methods, names on several lines, and how such a
script runs: `python3 SCRIPT FOLDER`, a sentence and exit code 4 where there is no matplotlib. The folder may be a stranger's."""
import colorsys
import io
import os
import sys
import textwrap
import zlib

import safe_files

try:
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
except ImportError:
    print("The plot was not drawn: python3 has no matplotlib (Debian package python3-matplotlib).", file=sys.stderr)
    sys.exit(4)

# Okabe and Ito's palette, told apart with any kind of colour vision.
COLOURS = ["#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]
BLACK, BLUE, VERMILION, GREEN, PINK, ORANGE, SKY = COLOURS
MARKERS = ["o", "s", "^", "D", "v", "P", "X"]
FAINT, GREY = "#E5E5E5", "#707070"

# A line's dash says where a step finds the KV that it attends.
DEVICE, HOST, LINK = "-", "--", ":"
DASHES = {DEVICE: "KV on the device", HOST: "the CPU attends", LINK: "KV fetched over the link"}
# Colour and marker tell the methods apart, in points, too. The order is that of legends, rows and maps.
METHODS = {"full": (BLACK, "o", DEVICE), "streaming": (GREEN, "s", DEVICE), "h2o": (PINK, "v", DEVICE), "quest": (ORANGE, "D", DEVICE),
           "tova": (SKY, "P", DEVICE), "asyncspade": (BLUE, "^", DEVICE),
           "full-host": (BLACK, "s", HOST), "hybrid-fixed": (BLUE, "v", HOST), "hgca": (VERMILION, "^", HOST),
           "scoutattention": (GREEN, "o", HOST), "fluxion": (PINK, "D", HOST),
           "full-offload": (BLACK, "^", LINK), "gpu-fetch": (BLUE, "o", LINK), "infinigen": (ORANGE, "v", LINK),
           "freekv": (VERMILION, "s", LINK), "hisparse": (GREEN, "v", LINK)}
OTHER_COLOURS, OTHER_MARKERS = ["#7B5EA7", "#8C6D31", GREY], ["*", "p", "h", "<", ">"]  # of a user's own methods
SHADES = [0, -0.35, 0.4, -0.6, 0.65]  # towards black below 0, towards white above: settings of one method


SCORES = {"longbench": "score", "leval": "score", "longproc": "score", "reasoning": "Pass@1"}  # others: accuracy
TITLES = {"longbench": "LongBench", "leval": "L-Eval", "longproc": "LongProc", "reasoning": "Reasoning", "perplexity": "Perplexity"}


def method_of(spec):
    return spec.partition(":")[0]


def in_order(specs):
    """Methods in the palette's order, a user's own behind them; settings of one method as they come."""
    known = list(METHODS)
    return sorted(specs, key=lambda spec: known.index(method_of(spec)) if method_of(spec) in METHODS else len(known))


def look_of(spec):
    """(colour, marker, dash): the same in every figure. A name that is no method of the suite has a look by its letters."""
    name = method_of(spec)
    if name in METHODS:
        return METHODS[name]
    n = zlib.crc32(name.encode("utf-8", "replace"))
    return OTHER_COLOURS[n % len(OTHER_COLOURS)], OTHER_MARKERS[n // len(OTHER_COLOURS) % len(OTHER_MARKERS)], DEVICE


def shaded(colour, by):
    red, green, blue = (int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5))
    hue, light, saturation = colorsys.rgb_to_hls(red, green, blue)
    light = light * (1 + by) if by < 0 else light + (1 - light) * by
    return "#" + "".join(f"{round(255 * part):02X}" for part in colorsys.hls_to_rgb(hue, light, saturation))


def line_styles(specs):
    """{specification: its line}. Settings of one method share hue and dash; shade and filling tell them apart."""
    styles, seen = {}, {}
    for spec in dict.fromkeys(specs):
        colour, marker, dash = look_of(spec)
        i = seen[method_of(spec)] = seen.get(method_of(spec), -1) + 1
        styles[spec] = {"color": shaded(colour, SHADES[i % len(SHADES)]), "linestyle": dash, "marker": marker,
                        "markersize": 5, "linewidth": 1.4, "fillstyle": ("full", "none", "left")[i % 3]}
    return styles


def length_name(length):
    return f"{length // 1024}K" if length % 1024 == 0 else str(length)


def wrapped(text, width):
    return "\n".join(textwrap.wrap(text, width))


def method_name(spec, width):
    """Options on lines of their own, so that long ones do not squeeze the panels."""
    return wrapped(spec.replace(":", ": ", 1).replace(",", ", "), width)


plt.rcParams.update({"font.size": 9, "text.parse_math": False, "svg.hashsalt": "tandem", "svg.fonttype": "none", "axes.spines.top": False,
                     "axes.spines.right": False})


def read_json(folder, name):
    return safe_files.read_json(os.path.join(folder, name))


def why_absent(row):
    """What stands in the place of a prediction's figures, as in the tables (eval/predict/row.cc); empty: it has them."""
    if "refused" not in row:
        return ""
    return "too slow" if row.get("too_slow") else "does not fit" if row.get("too_large") else "refused"


def dash_handles(specs):
    """(handles, labels) that say what the dashes mean; none where all lines are alike."""
    dashes = [dash for dash in DASHES if dash in {look_of(spec)[2] for spec in specs}]
    if len(dashes) < 2:
        return [], []
    return [plt.Line2D([], [], color=GREY, linewidth=1.4, linestyle=dash) for dash in dashes], [DASHES[dash] for dash in dashes]


def line_legend(figure, specs, more=(), lines=True):
    """One legend of methods beside the panels: to be saved with bbox_inches="tight". `more`: pairs of a handle and its label."""
    styles = line_styles(specs)
    names = in_order(styles)
    handles = [plt.Line2D([], [], **(styles[name] | ({} if lines else {"linestyle": "none"}))) for name in names]
    dashes, meanings = dash_handles(names) if lines else ([], [])
    figure.legend([*handles, *(handle for handle, _ in more), *dashes],
                  [*(method_name(name, 26) for name in names), *(label for _, label in more), *meanings],
                  loc="upper left", bbox_to_anchor=(1.0, 0.98), frameon=False, fontsize=8, handlelength=3)


def save(figure, folder, name, **options):
    """name.png and name.svg, whose bytes depend on the figure alone."""
    for kind, how in (("png", {"dpi": 150, "metadata": {"Software": None}}), ("svg", {"metadata": {"Date": None}})):
        picture = io.BytesIO()
        figure.savefig(picture, format=kind, **how, **options)
        safe_files.write_bytes(os.path.join(folder, f"{name}.{kind}"), picture.getvalue())


def run_script(script, explanation, draw):
    """The whole program: `draw` with the folder that the command line names."""
    if len(sys.argv) != 2:
        sys.exit(explanation)
    try:
        draw(sys.argv[1])
    except Exception as error:  # a damaged file of any kind: a line, not a traceback
        sys.exit(safe_files.printable(f"{script}: {type(error).__name__}: {error}"))
