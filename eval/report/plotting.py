"""What the plots of eval share: matplotlib without a display, colours, lines that can be told apart, names on several lines, and how
such a script runs: `python3 SCRIPT FOLDER`, exit code 4 where there is no matplotlib. The folder may be a stranger's."""
import io
import os
import sys
import textwrap

import safe_files

try:
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
except ImportError:
    sys.exit(4)

# Okabe and Ito's palette, told apart with any kind of colour vision; where methods are more, dashes tell them apart.
COLOURS = ["#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]
DASHES = ["-", "--", ":"]
MARKERS = ["o", "s", "^", "D", "v", "P", "X"]
FAINT = "#E5E5E5"


def line_style(i):
    return {"color": COLOURS[i % len(COLOURS)], "linestyle": DASHES[i // len(COLOURS) % len(DASHES)],
            "marker": MARKERS[(i + i // len(COLOURS)) % len(MARKERS)], "markersize": 4, "linewidth": 1.4}


def length_name(length):
    return f"{length // 1024}K" if length % 1024 == 0 else str(length)


def wrapped(text, width):
    return "\n".join(textwrap.wrap(text, width))


def method_name(spec, width):
    """Options on lines of their own, so that long ones do not squeeze the panels."""
    return wrapped(spec.replace(":", ": ", 1).replace(",", ", "), width)


def read_json(folder, name):
    return safe_files.read_json(os.path.join(folder, name))


def why_absent(row):
    """What stands in the place of a prediction's figures, as in the tables (eval/predict/row.cc); empty: it has them."""
    if "refused" not in row:
        return ""
    return "too slow" if row.get("too_slow") else "does not fit" if row.get("too_large") else "refused"


def line_legend(figure, names):
    """Of lines in line_style(0), line_style(1), ..., beside the panels: to be saved with bbox_inches="tight"."""
    handles = [plt.Line2D([], [], **line_style(i)) for i in range(len(names))]
    figure.legend(handles, [method_name(name, 26) for name in names], loc="upper left", bbox_to_anchor=(1.0, 0.98), frameon=False,
                  fontsize=8, handlelength=3)


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
    plt.rcParams.update({"font.size": 9, "text.parse_math": False, "svg.hashsalt": "tandem", "svg.fonttype": "none", "axes.spines.top": False,
                         "axes.spines.right": False})
    try:
        draw(sys.argv[1])
    except Exception as error:  # a damaged file of any kind: a line, not a traceback
        sys.exit(safe_files.printable(f"{script}: {type(error).__name__}: {error}"))
