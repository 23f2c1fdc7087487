#!/usr/bin/env python3
"""Copies the repository's pages and what they link into a folder that MkDocs builds a site from (scripts/site.sh).

  python3 scripts/site_pages.py FOLDER      FOLDER/pages and FOLDER/mkdocs.json; an earlier copy is replaced

Pages keep their paths, so that links between them hold. Linked files are copied, and a link to a folder leads to its README.md or
becomes text. The navigation has the sections of docs/README.md. MkDocs loads this file, too, for on_config().
"""
import json
import os
import posixpath
import re
import shutil
import sys
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from check_pages import LINK, pages_of  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^ *(```|~~~)")
ITEM = re.compile(r"^( *)(?:[*+-]|\d+\.) ")


def anchor(heading, _separator="-"):
    """GitHub's, which check_pages.py checks."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def on_config(config):
    config["mdx_configs"]["toc"] = {"slugify": anchor}
    return config


def links_of_site(page, text, root, linked):
    """The page's text with links that hold on the site; adds the files that it links to `linked`."""
    def link(found):
        label, target = found.group(1), found.group(2)
        name, mark, rest = target.partition("#")
        if not name or re.match(r"[a-z]+:", target):
            return found.group(0)
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), name))
        if (root / path).is_dir():
            return f"[{label}]({posixpath.join(name, 'README.md')}{mark}{rest})" if (root / path / "README.md").exists() else label
        if not path.endswith(".md"):
            linked.add(path)
        return found.group(0)

    return LINK.sub(link, text)


def for_python_markdown(text):
    """Its lists begin behind an empty line, and lists inside them four columns further in."""
    out, fenced = [], False
    for line in text.split("\n"):
        item = ITEM.match(line)
        if FENCE.match(line):
            fenced = not fenced
        elif item and not fenced and len(item.group(1)) < 4:
            before = out[-1] if out else ""
            if not item.group(1) and before.strip() and not ITEM.match(before) and not before.startswith((" ", "#")):
                out.append("")
            line = item.group(1) + line
        out.append(line)
    return "\n".join(out)


def navigation(root, pages):
    """The start page, a section for each heading of docs/README.md with the pages that it lists, and all lab notes."""
    nav, section = [{"Tandem": "README.md"}], None
    for line in (root / "docs/README.md").read_text(encoding="utf-8").split("\n"):
        if line.startswith("## "):
            section = []
            nav.append({line[3:]: section})
        for _, target in LINK.findall(line):
            path = posixpath.normpath(posixpath.join("docs", target.partition("#")[0]))
            if section is not None and path in pages and path not in section:
                section.append(path)
    if section is not None:
        section += sorted(page for page in pages if page.startswith("studies/") and page not in section)
    return [entry for entry in nav if all(entry.values())]


def write_pages(root, folder):
    pages = folder / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    names, linked = [], set()
    for file in pages_of(root):
        name = file.relative_to(root).as_posix()
        names.append(name)
        (pages / name).parent.mkdir(parents=True, exist_ok=True)
        text = links_of_site(name, file.read_text(encoding="utf-8"), root, linked)
        (pages / name).write_text(for_python_markdown(text), encoding="utf-8")
    for name in sorted(linked):
        (pages / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, pages / name)
    config = {"site_name": "Tandem", "docs_dir": "pages", "site_dir": "../site", "theme": {"name": "readthedocs", "navigation_depth": 2},
              "plugins": ["search"], "use_directory_urls": False, "hooks": [str(Path(__file__).resolve())],
              "markdown_extensions": ["tables", "fenced_code", "sane_lists", "toc"], "nav": navigation(root, names)}
    (folder / "mkdocs.json").write_text(json.dumps(config, indent=1))
    return len(names), len(linked)


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    pages, files = write_pages(ROOT, Path(sys.argv[1]))
    print(f"site_pages.py: {pages} pages and {files} files that they link are in {sys.argv[1]}/pages.")


if __name__ == "__main__":
    main()
