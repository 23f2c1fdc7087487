"""Makes one page of runs: reads {"title", "tables", "runs": [{"name", "folder", "complete"}], "made_by"} as JSON, `tables` being
Markdown and `folder` the bytes of its path in hexadecimal digits, and writes HTML with each run's report.md and plots in it.
Nothing of it lies in another file.

Names of folders, methods and models are in the midst of that Markdown, so only what our own reports are made of is read as such:
headings, paragraphs, tables, lists and code, and, each on a line of its own, bold lines and pictures. Nothing becomes a link, and
no link among the files is followed.

  python3 eval/tables/page.py <page.json >page.html
"""
import base64
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
:root { --text: #1f2328; --faint: #59636e; --line: #d1d9e0; --back: #ffffff; --shade: #f6f8fa; --link: #0969da; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6edf3; --faint: #9198a1; --line: #3d444d; --back: #0d1117; --shade: #151b23; --link: #4493f8; } }
body { color: var(--text); background: var(--back); font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto;
       padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.3rem; margin-top: 3rem; border-bottom: 1px solid var(--line); } h3 { font-size: 1.1rem; }
a { color: var(--link); } p, li { max-width: 60rem; } code { background: var(--shade); padding: 0.1em 0.3em; overflow-wrap: anywhere; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.87rem; }
th, td { padding: 0.25rem 0.6rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { white-space: normal; vertical-align: bottom; background: var(--shade); } tbody tr:hover { background: var(--shade); }
img { max-width: 100%; background: #ffffff; border: 1px solid var(--line); } nav a { margin-right: 1rem; }
footer { color: var(--faint); margin-top: 3rem; }
"""


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
    body = re.sub(r"<th\b.*?</th>", lambda head: head[0].replace("&lt;br&gt;", "<br>"), body)  # above the clock's name
    return body.replace("<table>", '<div class="wide"><table>').replace("</table>", "</table></div>")


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
    text = re.sub(r"(?m)^\*\*(.+)\*\*$", lambda m: keep(f"<strong>{html.escape(unescaped(m[1]))}</strong>"), text)
    blocks = ("empty", "indent", "code", "table", "hashheader", "hr", "olist", "ulist", "quote", "paragraph")
    body = converted(text, blocks, ("backtick", "escape"))
    return re.sub(mark + r"-(\d+)-", lambda m: lines[int(m[1])], body)


def picture(folder, name, shows):
    """The picture itself, as vectors where there are some; where it is not there, what it would show."""
    shows = html.escape(shows)
    stem = os.path.join(folder, os.path.splitext(os.path.basename(name))[0])
    for end, kind in TYPES.items():
        try:
            return f'<img alt="{shows}" src="data:{kind};base64,{base64.b64encode(read_bytes(stem + end)).decode()}" />'
        except FileNotFoundError:
            continue
    return f"<em>{shows}: not drawn</em>"


def section_of(run, number):
    """A run's own report, its headings a level lower."""
    folder = os.fsdecode(bytes.fromhex(run["folder"]))
    try:
        report = printable(read_bytes(os.path.join(folder, "report.md")).decode("utf-8", "replace"), lines=True)
    except FileNotFoundError:
        report = "# Not reported yet\n\nThe folder has no report.md."
        report += "\n" if run["complete"] else " The run is not complete.\n"
    first, _, rest = report.partition("\n")
    title = unescaped(first.removeprefix("# ")) if first.startswith("# ") else ""
    body = rest if title else report
    body = re.sub(r"(?m)^(#+ )", r"#\1", body)
    name = html.escape(printable(run["name"]))
    return (f'<section id="run-{number}">\n<h2>{name}{": " + html.escape(title) if title else ""}</h2>\n'
            f"{report_to_html(body, folder)}\n</section>")


def main():
    page = json.load(sys.stdin)
    title = html.escape(printable(page["title"]))
    links = " ".join(f'<a href="#run-{i}">{html.escape(printable(run["name"]))}</a>' for i, run in enumerate(page["runs"]))
    sections = "\n".join(section_of(run, i) for i, run in enumerate(page["runs"]))
    tables = tables_to_html(page["tables"])
    sys.stdout.reconfigure(encoding="utf-8")
    sys.stdout.write(f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
                     f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{title}</title>\n'
                     f"<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<nav>{links}</nav>\n{tables}\n{sections}\n"
                     f"<footer>{html.escape(page['made_by'])}</footer>\n</body>\n</html>\n")


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError, LookupError, TypeError) as error:
        sys.exit(printable(f"eval/tables/page.py: {type(error).__name__}: {error}"))
