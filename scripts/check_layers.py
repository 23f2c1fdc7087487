#!/usr/bin/env python3
"""Checks the layers of the source folders: a file includes only folders below its own, and no two folders include each other.

  python3 scripts/check_layers.py [FOLDER]      FOLDER: a checkout; default: this one. Exit code 1 where an include breaks a rule

ALLOWED is the rule, and the only place to change it. Each folder of engine/mechanisms, methods and eval counts as one of its
own in a cycle. scripts/lint.sh runs this.
"""
import posixpath
import re
import sys
from collections import defaultdict, deque
from fnmatch import fnmatchcase
from pathlib import Path

# Folders that each layer may include beside itself, from the lowest layer to the highest. A folder stands for all below it;
# the first that holds a file is its layer.
BASE = ["engine/common", "engine/device", "engine/kernels"]
ALLOWED = {
    "engine/common": [],
    "engine/device": ["engine/common"],
    "engine/kernels": ["engine/common", "engine/device"],
    "engine/kv": BASE,
    "engine/model": BASE,
    "engine/distributed": BASE,
    "engine/trace": ["engine/common", "engine/device"],
    "engine/runtime": [*BASE, "engine/kv", "engine/model", "engine/distributed", "engine/trace"],
    # A mechanism's kernels are linked with all others.
    "engine/mechanisms/*/kernels": BASE,
    # Mechanisms work with the runtime's interfaces; the runtime knows no mechanism by name.
    "engine/mechanisms": [*BASE, "engine/kv", "engine/model", "engine/distributed", "engine/runtime"],
    "methods": ["engine"],
    # The probe is built on machines without any library.
    "hardware/probe": ["engine/common"],
    # Calibration reads and prints with eval/report, and eval/here makes profiles with it.
    "hardware/calibration": ["engine/common", "engine/device", "eval/report"],
    "eval": ["engine", "methods", "hardware/calibration"],
    "cli": ["engine", "methods", "eval", "hardware/calibration"],
    "bench": ["engine", "methods", "eval"],
}
# The only files that may include tests/, and the folder there that each may include.
OF_TESTS = {
    "engine/kernels/cuda/device.cuh": "tests/engine/kernels/cuda_emulator",  # in place of nvcc
    "engine/kernels/cuda/launch.cuh": "tests/engine/kernels/cuda_emulator",
    "hardware/probe/device.cuh": "tests/hardware/emulated_gpu",
    "bench/launches_bench.cc": "tests/engine/kernels/cuda_emulator",  # built with the tests only
}
# In a cycle, each subfolder of these counts as a folder of its own. LISTS name all members of a group: they are left out.
GROUPS = ["engine/mechanisms", "methods", "eval"]
LISTS = ["methods/registry.cc"]

TOPS = [*dict.fromkeys(folder.split("/")[0] for folder in ALLOWED), "tests"]
SUFFIXES = {".h", ".cc", ".cu", ".cuh"}
INCLUDE = re.compile(r'\s*#\s*include\s+"([^"]+)"')


def is_in(path: str, folder: str) -> bool:
    return fnmatchcase(path, folder + "/*")


def layer_of(path: str) -> str | None:
    return next((folder for folder in ALLOWED if is_in(path, folder)), None)


def node_of(path: str) -> str:
    """The folder that counts in a cycle."""
    group = next((folder for folder in GROUPS if is_in(path, folder)), None)
    if group is None:
        return layer_of(path)
    parts = path[len(group) + 1:].split("/")
    return f"{group}/{parts[0]}" if len(parts) > 1 else group


def listed(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def includes_of(root: Path):
    """(file, line, include) of each include of a source folder's file, in order."""
    for top in TOPS[:-1]:
        for file in sorted(path for path in (root / top).rglob("*") if path.suffix in SUFFIXES):
            for number, line in enumerate(file.read_text(encoding="utf-8").split("\n"), 1):
                found = INCLUDE.match(line)
                if found:
                    name = found.group(1)
                    own = name.split("/")[0] not in TOPS  # a path from the file's own folder
                    path = file.relative_to(root).as_posix()
                    yield path, number, posixpath.normpath(posixpath.join(posixpath.dirname(path), name)) if own else name


def cycles(edges: dict[str, dict[str, str]]) -> list[list[str]]:
    """A shortest cycle of folders through each folder that is in one and in none of those before."""
    found, seen = [], set()
    for start in sorted(edges):
        if start in seen:
            continue
        before, queue = {}, deque([start])
        while queue and start not in before:
            at = queue.popleft()
            for to in sorted(edges.get(at, {})):
                if to not in before:
                    before[to] = at
                    queue.append(to)
        if start in before:
            ring = [start, before[start]]
            while ring[-1] != start:
                ring.append(before[ring[-1]])
            found.append(ring[::-1])
            seen.update(ring)
    return found


def complaints(root: Path) -> list[str]:
    """A sentence for each include that breaks a rule, then one for each cycle of the others."""
    said, edges = [], defaultdict(dict)
    for file, line, target in includes_of(root):
        place, layer = f'{file}:{line} includes "{target}"', layer_of(file)
        if layer is None:
            said.append(f"{place}, and its folder belongs to no layer: add the folder to ALLOWED in scripts/check_layers.py.")
        elif is_in(target, "tests"):
            if not (file in OF_TESTS and is_in(target, OF_TESTS[file])):
                said.append(f"{place}, but only tests may include tests: move what {layer} needs out of tests/.")
        elif not any(is_in(target, folder) for folder in [layer, *ALLOWED[layer]]):
            below = f"only {listed(ALLOWED[layer])}" if ALLOWED[layer] else "no other folder"
            said.append(f"{place}, but {layer} may include {below}: move what it needs down into a folder that it may include, "
                        f"or move {file} up.")
        elif node_of(file) != node_of(target) and file not in LISTS:
            edges[node_of(file)].setdefault(node_of(target), place)
    for ring in cycles(edges):
        ways = [edges[a][b] for a, b in zip(ring, ring[1:], strict=False)]
        said.append(f"The folders {listed(ring[:-1])} include each other: {listed(ways)}. Move what they share into a folder "
                    "below them, or make them one folder.")
    return said


def main() -> int:
    if len(sys.argv) > 2 or sys.argv[1:2] in (["-h"], ["--help"]):
        print(__doc__)
        return 2
    root = Path(sys.argv[1]) if len(sys.argv) == 2 else Path(__file__).resolve().parent.parent
    if not root.is_dir():
        print(f"check_layers.py: there is no folder {root}: give the folder of a checkout.", file=sys.stderr)
        return 2
    said = complaints(root)
    for sentence in said:
        print(f"check_layers.py: {sentence}", file=sys.stderr)
    if not said:
        print(f"check_layers.py: the includes of {', '.join(TOPS[:-1])} follow the layers.")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
