"""Tests of scripts/site_pages.py; MkDocs itself is not run."""
import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import site_pages

TREE = {
    "README.md": "# Start\n[guide](docs/guide.md#how-to--fast) [file](data/a.json) [folder](data) [none](bare) [web](https://x.org/a)\n",
    "docs/README.md": "# Documentation\n## How-to guides\n| to | [guide](guide.md) |\n## Reference\n* [data](../data/README.md)\n## Lab notes\n",
    "docs/guide.md": "# Guide\n",
    "data/README.md": "# Data\n",
    "data/a.json": "{}",
    "bare/file": "",
    "studies/notes/one.md": "# One\n",
}


class SiteTest(unittest.TestCase):
    def test_links_hold_and_sections_are_those_of_the_list(self):
        with tempfile.TemporaryDirectory() as made:
            root, folder = Path(made) / "tree", Path(made) / "site"
            for name, text in TREE.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            self.assertEqual(site_pages.write_pages(root, folder), (5, 1))
            self.assertEqual((folder / "pages/README.md").read_text(),
                             "# Start\n[guide](docs/guide.md#how-to--fast) [file](data/a.json) [folder](data/README.md) none "
                             "[web](https://x.org/a)\n")
            self.assertTrue((folder / "pages/data/a.json").exists())
            self.assertEqual(json.loads((folder / "mkdocs.json").read_text())["nav"],
                             [{"Tandem": "README.md"}, {"How-to guides": ["docs/guide.md"]}, {"Reference": ["data/README.md"]},
                              {"Lab notes": ["studies/notes/one.md"]}])

    def test_lists_are_ones_for_python_markdown(self):
        self.assertEqual(site_pages.for_python_markdown("text\n* one\n  - two\n* three"), "text\n\n* one\n    - two\n* three")
        for same in ("# Head\n* one", "* one\n  goes on\n* two", "```\ntext\n* one\n```", "    text\n    * one"):
            self.assertEqual(site_pages.for_python_markdown(same), same)

    def test_anchors_are_github_s(self):
        self.assertEqual(site_pages.anchor("How to: (fast) `--x`"), "how-to-fast---x")


if __name__ == "__main__":
    unittest.main()
