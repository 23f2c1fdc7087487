"""Makes one page of runs: reads {"title", "tables", "runs": [{"name", "folder", "complete"}], "made_by"} as JSON, `tables` being
Markdown and `folder` the bytes of its path in hexadecimal digits, and writes HTML with each run's report.md and plots in it. A single
run's page is its report.md alone. The page loads no other file. Its script only sorts tables.

Names of folders, methods and models are in the midst of that Markdown, so only what our own reports are made of is read as such:
headings, paragraphs, tables, lists and code, and, each on a line of its own, bold lines and pictures. Nothing becomes a link, and
no link among the files is followed.

  python3 eval/tables/page.py <page.json >page.html
"""
import base64
import hashlib
import html
import json
import os
import re
import secrets
import sys

try:
    import markdown
except ImportError:
    sys.exit(4)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "report"))
from safe_files import printable, read_bytes  # noqa: E402

PUNCTUATION = r"""!"#$%&'()*+,-./:;<=>?@[\]^_`{|}~"""  # that a backslash may stand before
TYPES = {".svg": "image/svg+xml", ".png": "image/png"}
STYLE = """
:root { color-scheme: light dark; --text: #1f2328; --faint: #59636e; --line: #d1d9e0; --back: #ffffff; --shade: #f6f8fa;
        --link: #0969da; --edge: rgb(0 0 0 / 18%); }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6edf3; --faint: #9198a1; --line: #3d444d; --back: #0d1117; --shade: #151b23; --link: #4493f8;
          --edge: rgb(0 0 0 / 70%); } }
body { color: var(--text); background: var(--back); font: 15px/1.5 system-ui, sans-serif; max-width: 100rem; margin: 2rem auto;
       padding: 0 clamp(0.75rem, 3vw, 2.5rem); }
h1 { font-size: 1.6rem; line-height: 1.25; } h3 { font-size: 1.1rem; }
h2 { font-size: 1.3rem; margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
a { color: var(--link); } p, li { max-width: 52rem; overflow-wrap: anywhere; }
code { background: var(--shade); padding: 0.1em 0.3em; overflow-wrap: anywhere; }
.wide { overflow-x: auto; margin: 1rem 0;
        background: linear-gradient(to right, var(--back) 40%, transparent) left / 3rem 100% no-repeat local,
                    linear-gradient(to left, var(--back) 40%, transparent) right / 3rem 100% no-repeat local,
                    linear-gradient(to right, var(--edge), transparent) left / 0.8rem 100% no-repeat,
                    linear-gradient(to left, var(--edge), transparent) right / 0.8rem 100% no-repeat; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.87rem; }
th, td { padding: 0.25rem 0.6rem; border-bottom: 1px solid var(--line); white-space: nowrap; text-align: left; }
th { white-space: normal; vertical-align: bottom; border-bottom-width: 2px; } .figure { text-align: right; }
.name { position: sticky; left: 0; z-index: 1; background: var(--back); box-shadow: 1px 0 0 var(--line); max-width: 18rem;
        white-space: normal; overflow-wrap: break-word; }
tbody tr:hover td { background: var(--shade); }
th button { all: unset; cursor: pointer; } th button:focus-visible { outline: 2px solid var(--link); }
th button::after { content: "\\2195"; color: var(--faint); font-size: 0.8em; padding-left: 0.25em; }
th[aria-sort=ascending] button::after { content: "\\2191"; } th[aria-sort=descending] button::after { content: "\\2193"; }
img { max-width: 100%; height: auto; background: #ffffff; border: 1px solid var(--line); border-radius: 4px; }
nav a { margin-right: 1rem; } summary { cursor: pointer; font-size: 1.3rem; font-weight: bold; margin-top: 2.5rem; }
footer { color: var(--faint); margin-top: 3rem; }
@media (max-width: 40rem) { .wide img { max-width: none; width: 44rem; } .name { max-width: 8rem; } }
@page { size: A4 landscape; margin: 12mm; }
@media print {
  body { font-size: 10px; margin: 0; padding: 0; max-width: none; } table { font-size: 8px; } .wide { overflow: visible; background: none; }
  th, td { padding: 1px 4px; white-space: normal; } .name { position: static; box-shadow: none; }
  th button::after { content: none !important; } nav { display: none; } tr, img { break-inside: avoid; } h2, h3 { break-after: avoid; }
  img { max-height: 170mm; } }
"""
# Sorts a table by the column whose head is clicked, figures with the largest first; cells without a figure stay last. Opens what is folded
# before it is printed.
SCRIPT = """
const units = {B: 1, KB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12, K: 1024};
function figure(text) {
  const found = /^[<~]?([-+]?[0-9][0-9,]*(?:[.][0-9]+)?)(?:\\s?(B|KB|MB|GB|TB|K)\\b)?/.exec(text);
  return found ? Number(found[1].replaceAll(",", "")) * (units[found[2]] ?? 1) : NaN;
}
function sort(table, head) {
  const rows = [...table.tBodies[0].rows], column = head.cellIndex;
  const text = row => row.cells[column].textContent.trim(), is_figure = head.classList.contains("figure");
  const first = is_figure ? "descending" : "ascending", second = is_figure ? "ascending" : "descending";
  const order = head.ariaSort === first ? second : first, sign = order === "ascending" ? 1 : -1;
  rows.sort((a, b) => {
    const x = figure(text(a)), y = figure(text(b));
    if (is_figure && (isNaN(x) || isNaN(y))) return isNaN(x) - isNaN(y);
    return sign * (is_figure ? x - y : text(a).localeCompare(text(b), "en", {numeric: true}));
  });
  for (const cell of table.tHead.rows[0].cells) cell.ariaSort = null;
  head.ariaSort = order;
  table.tBodies[0].append(...rows);
}
for (const table of document.querySelectorAll("table")) {
  if (table.tBodies.length === 0 || table.tBodies[0].rows.length < 2) continue;
  for (const head of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    button.addEventListener("click", () => sort(table, head));
    head.append(button);
  }
}
addEventListener("beforeprint", () => { for (const folded of document.querySelectorAll("details")) folded.open = true; });
"""
FOLDED = "How it was made"  # a heading whose section is folded


def digest(text):
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


# The browser loads and runs only the page's own style, script and pictures, even if a name in it holds HTML.
POLICY = f"default-src 'none'; img-src data:; style-src {digest(STYLE)}; script-src {digest(SCRIPT)}"


def dressed(table):
    """A table in a frame of its own width; figures are to the right, and the column of methods, or the first, stays in sight."""
    table = table.replace(' style="text-align: right;"', ' class="figure"')
    heads = re.findall(r"<th[^>]*>(.*?)</th>", table, re.DOTALL)
    kept = heads.index("method") if "method" in heads else 0

    def with_name(row):
        before, *cells = re.split(r"(?=<t[hd][ >])", row[0])
        if len(cells) > kept:
            cells[kept] = re.sub(r"^<(t[hd])[^>]*>", r'<\1 class="name">', cells[kept])
        # A method's options may begin a line.
        cells = [re.sub(r"(?<=\w)([:,=])(?=\w)", r"\1<wbr>", cell) if i == kept or cell.startswith("<th") else cell
                 for i, cell in enumerate(cells)]
        return before + "".join(cells)

    return '<div class="wide">' + re.sub(r"<tr>.*?</tr>", with_name, table, flags=re.DOTALL) + "</div>"


def converted(text, blocks, inline):
    """HTML of Markdown of which only these are read; all else is text, HTML and its entities too."""
    reader = markdown.Markdown(extensions=["tables"])
    reader.ESCAPED_CHARS = list(PUNCTUATION)
    reader.preprocessors.deregister("html_block")
    for registry, kept in ((reader.parser.blockprocessors, blocks), (reader.inlinePatterns, inline)):
        for name in [item.name for item in registry._priority]:
            if name not in kept:
                registry.deregister(name)
    body = reader.convert(text.replace("&", "&amp;"))  # what looks like an entity is taken for one
    body = re.sub(r"<code>.*?</code>", lambda code: code[0].replace("&amp;amp;", "&amp;"), body, flags=re.DOTALL)
    return re.sub(r"<table>.*?</table>", lambda table: dressed(table[0]), body, flags=re.DOTALL)


def tables_to_html(text):
    """Sections of paragraphs and tables. A name ends in ": ", so that no paragraph that begins with one is a heading."""
    html_of = []
    for i, part in enumerate(re.split(r"(?m)^## ([A-Za-z, ]+)$", text)):
        html_of.append(f"<h3>{part}</h3>" if i % 2 else converted(part, ("empty", "table", "paragraph"), ("escape",)))
    return "\n".join(html_of)


def unescaped(text):
    return re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", text)


def report_to_html(text, folder):
    """A report, whose pictures are in the folder."""
    mark = secrets.token_hex(16)  # that no report has
    lines = []

    def keep(line):
        lines.append(line)
        return f"\n\n{mark}-{len(lines) - 1}-\n\n"

    text = re.sub(r"(?m)^!\[([^\]\n]*)\]\(([\w.-]+\.(?:png|svg))\)$", lambda m: keep(picture(folder, m[2], m[1])), text)
    text = re.sub(r"(?m)^\*\*(.+)\*\*$", lambda m: keep(f"<p><strong>{html.escape(unescaped(m[1]))}</strong></p>"), text)
    blocks = ("empty", "indent", "code", "table", "hashheader", "hr", "olist", "ulist", "quote", "paragraph")
    body = converted(text, blocks, ("backtick", "escape"))
    body = re.sub(rf"<p>{mark}-(\d+)-</p>", lambda m: lines[int(m[1])], body)
    return re.sub(rf"{mark}-(\d+)-", lambda m: lines[int(m[1])], body)  # in a list, for example


def picture(folder, name, shows):
    """The picture itself, as vectors where there are some; where it is not there, what it would show."""
    shows = html.escape(shows)
    stem = os.path.join(folder, os.path.splitext(os.path.basename(name))[0])
    for end, kind in TYPES.items():
        try:
            bytes_of = base64.b64encode(read_bytes(stem + end)).decode()
            return f'<div class="wide"><img alt="{shows}" src="data:{kind};base64,{bytes_of}" /></div>'
        except FileNotFoundError:
            continue
    return f"<p><em>{shows}: not drawn</em></p>"


def report_of(run):
    """(title, text) of a run's own report.md."""
    folder = os.fsdecode(bytes.fromhex(run["folder"]))
    report = printable(read_bytes(os.path.join(folder, "report.md")).decode("utf-8", "replace"), lines=True)
    first, _, rest = report.partition("\n")
    return (unescaped(first.removeprefix("# ")), rest) if first.startswith("# ") else ("", report)


def body_of(run, text):
    """HTML of a report; how the run was made is folded."""
    body = report_to_html(text, os.fsdecode(bytes.fromhex(run["folder"])))
    return re.sub(rf"<h(\d)>{FOLDED}</h\1>(.*?)(?=<h\d>|\Z)", rf"<details><summary>{FOLDED}</summary>\2</details>", body, flags=re.DOTALL)


def section_of(run, number):
    """A run among others: its own report, its headings a level lower."""
    try:
        title, text = report_of(run)
    except FileNotFoundError:
        title = "Not reported yet"
        text = "\nThe folder has no report.md." + ("\n" if run["complete"] else " The run is not complete.\n")
    text = re.sub(r"(?m)^(#+ )", r"#\1", text)
    name = html.escape(printable(run["name"]))
    return f'<section id="run-{number}">\n<h2>{name}{": " + html.escape(title) if title else ""}</h2>\n{body_of(run, text)}\n</section>'


def content_of(page):
    """The page below its head: one run's report alone, which has all tables, or tables side by side and the reports after them."""
    title = html.escape(printable(page["title"]))
    if len(page["runs"]) == 1:
        try:
            own, text = report_of(page["runs"][0])
            return f"<h1>{html.escape(own) or title}</h1>\n{body_of(page['runs'][0], text)}"
        except FileNotFoundError:
            pass
    links = " ".join(f'<a href="#run-{i}">{html.escape(printable(run["name"]))}</a>' for i, run in enumerate(page["runs"]))
    sections = "\n".join(section_of(run, i) for i, run in enumerate(page["runs"]))
    return f"<h1>{title}</h1>\n<nav>{links}</nav>\n{tables_to_html(page['tables'])}\n{sections}"


def main():
    page = json.load(sys.stdin)
    sys.stdout.reconfigure(encoding="utf-8")
    sys.stdout.write(f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
                     f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
                     f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
                     f"<title>{html.escape(printable(page['title']))}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{content_of(page)}\n"
                     f"<footer>{html.escape(page['made_by'])}</footer>\n<script>{SCRIPT}</script>\n</body>\n</html>\n")


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError, LookupError, TypeError) as error:
        sys.exit(printable(f"eval/tables/page.py: {type(error).__name__}: {error}"))
