"""Makes one page of runs: reads {"title", "tables", "runs": [{"name", "folder"}]} as JSON, `tables` being Markdown, and writes HTML with
each run's report.md and plots in it. Nothing of it lies in another file.

  python3 eval/tables/page.py <page.json >page.html
"""
import base64
import html
import json
import os
import re
import sys

try:
    import markdown
except ImportError:
    sys.exit(4)

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


def to_html(text):
    """Without HTML of its own: what looks like it in a label or a path is text."""
    reader = markdown.Markdown(extensions=["tables"])
    reader.preprocessors.deregister("html_block")
    reader.inlinePatterns.deregister("html")
    reader.inlinePatterns.deregister("entity")
    body = reader.convert(text)
    return body.replace("<table>", '<div class="wide"><table>').replace("</table>", "</table></div>")


def picture(folder, name):
    """The picture as a data URI, as vectors where there are some; None: it is not there."""
    stem = os.path.join(folder, os.path.splitext(os.path.basename(name))[0])
    for end, kind in TYPES.items():
        try:
            with open(stem + end, "rb") as file:
                return f"data:{kind};base64,{base64.b64encode(file.read()).decode()}"
        except FileNotFoundError:
            continue
    return None


def with_pictures(body, folder):
    def inline(match):
        data = picture(folder, html.unescape(match["src"]))
        return match[0].replace(f'src="{match["src"]}"', f'src="{data}"') if data else f"<em>{match['alt']}: not drawn</em>"
    return re.sub(r'<img alt="(?P<alt>[^"]*)" src="(?P<src>[^"]*)" />', inline, body)


def section_of(run, number):
    """A run's own report, its headings a level lower."""
    try:
        with open(os.path.join(run["folder"], "report.md"), encoding="utf-8", errors="replace") as file:
            report = file.read()
    except FileNotFoundError:
        report = "# Not reported yet\n\nThe run has no report.md: it was stopped before its end.\n"
    first, _, rest = report.partition("\n")
    title = first.removeprefix("# ") if first.startswith("# ") else ""
    body = rest if title else report
    body = re.sub(r"(?m)^(#+ )", r"#\1", body)
    name = html.escape(run["name"])
    return (f'<section id="run-{number}">\n<h2>{name}{": " + html.escape(title) if title else ""}</h2>\n'
            f'{with_pictures(to_html(body), run["folder"])}\n</section>')


def main():
    page = json.load(sys.stdin)
    title = html.escape(page["title"])
    links = " ".join(f'<a href="#run-{i}">{html.escape(run["name"])}</a>' for i, run in enumerate(page["runs"]))
    sections = "\n".join(section_of(run, i) for i, run in enumerate(page["runs"]))
    tables = to_html(re.sub(r"(?m)^## ", "### ", page["tables"]))
    sys.stdout.reconfigure(encoding="utf-8")
    sys.stdout.write(f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
                     f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{title}</title>\n'
                     f"<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<nav>{links}</nav>\n{tables}\n{sections}\n"
                     f"<footer>{html.escape(page['made_by'])}</footer>\n</body>\n</html>\n")


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError, LookupError, TypeError) as error:
        sys.exit(f"eval/tables/page.py: {type(error).__name__}: {error}")
