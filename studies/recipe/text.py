"""Natural text for training: one file of sentences from folders of .txt, .json and .jsonl files.

  python3 studies/recipe/text.py --from ~/data/wikitext ~/data/essays --out sentences.txt

Takes .txt files as they are, and from JSON the strings under "text", "input", "context" and "content" (also inside lists).
Keeps printable ASCII sentences of 20 to 400 characters, once each. Beside the output, <out>.sources.json says how many
sentences came from which file; training copies it into the model's training.json, because a model should not be tested
on the documents that it was trained on.
"""
import argparse
import json
import re
from pathlib import Path
from typing import Iterator

FIELDS = ("text", "input", "context", "content")


def strings(value) -> Iterator[str]:
    """Every string under one of FIELDS."""
    if isinstance(value, list):
        for item in value:
            yield from strings(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            if name in FIELDS and isinstance(item, str):
                yield item
            else:
                yield from strings(item)


def documents(file: Path) -> Iterator[str]:
    if file.suffix == ".txt":
        text = file.read_text(encoding="utf-8", errors="replace")
        yield from re.sub(r" @([-,.])@ ", r"\1", text).split("\n")  # WikiText writes 1 @,@ 000
    elif file.suffix == ".json":
        yield from strings(json.loads(file.read_text(encoding="utf-8")))
    elif file.suffix == ".jsonl":
        with file.open(encoding="utf-8") as lines:
            for line in lines:
                yield from strings(json.loads(line))


def sentences(document: str) -> list[str]:
    document = re.sub(r"\s+", " ", re.sub(r"[^\x20-\x7e]+", " ", document)).strip()
    return [s for s in re.split(r"(?<=[.!?]) ", document) if 20 < len(s) < 400]


def load(file: str | None) -> list[str]:
    """Sentences of a file made by this program; none where there is no file."""
    return Path(file).read_text(encoding="utf-8").splitlines() if file else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="sources", nargs="+", required=True, metavar="PATH", help="folders or files")
    parser.add_argument("--out", required=True, help="the file of sentences, one per line")
    parser.add_argument("--most-mb", type=float, default=15, help="stop at this size (default 15)")
    options = parser.parse_args()
    files = [f for source in map(Path, options.sources)
             for f in ([source] if source.is_file() else sorted(source.rglob("*"))) if f.suffix in (".txt", ".json", ".jsonl")]
    if not files:
        raise SystemExit(f"text.py: there is no .txt, .json or .jsonl file under {', '.join(options.sources)}.")
    kept: dict[str, None] = {}
    counts, size = {}, 0
    for file in files:
        before = len(kept)
        for document in documents(file):
            for sentence in sentences(document):
                if sentence not in kept and size < options.most_mb * 1e6:
                    kept[sentence] = None
                    size += len(sentence) + 1
        counts[file.name] = len(kept) - before
        print(f"{counts[file.name]:8} sentences  {file}")
    Path(options.out).write_text("\n".join(kept) + "\n", encoding="utf-8")
    Path(options.out + ".sources.json").write_text(json.dumps(counts, indent=1) + "\n", encoding="utf-8")
    print(f"{len(kept):8} sentences, {size / 1e6:.1f} MB in {options.out}")


if __name__ == "__main__":
    main()
