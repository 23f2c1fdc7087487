"""clang-tidy over build/files/compile_commands.json, skipping what was found clean before. Called by lint.sh.

A file's key is the hash of .clang-tidy, the clang-tidy version, the checks and its preprocessed text, so that a changed header
re-checks what includes it and nothing else. Only clean results are kept, in ~/.cache/tandem/lint (XDG_CACHE_HOME), so
that all checkouts of one machine share them; the checkout's own path does not count.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# It leaves system headers alone, which 14 does not: 3.4 s of CPU time a test file instead of 5.8 s.
TIDY = "clang-tidy-22"
FOLDERS = ("engine", "methods", "eval", "hardware", "cli", "bench", "tests")
FORGOTTEN_AFTER = 30 * 24 * 3600  # seconds since a result was last of use


def commands(database):
    """(file, arguments without output, launcher and compiler) per source file of the repository."""
    seen = set()
    for entry in json.loads(database.read_text()):
        file = pathlib.Path(entry["directory"], entry["file"]).resolve()
        if file in seen or file.suffix != ".cc" or not file.is_relative_to(ROOT):
            continue
        if file.relative_to(ROOT).parts[0] not in FOLDERS:
            continue
        seen.add(file)
        words = shlex.split(entry["command"])
        if words[0].endswith("ccache"):
            words = words[1:]
        arguments = []
        skip = False
        for word in words[1:]:
            if skip or word in ("-o", "-MF", "-MT", "-MQ"):
                skip = not skip
            elif word not in ("-c", "-MD", "-MMD", entry["file"], str(file)):
                arguments.append(word)
        yield file, words[0], arguments, entry["directory"]


def key(base, file, compiler, arguments, directory):
    done = subprocess.run([compiler, *arguments, "-E", "-P", "-C", str(file)], cwd=directory, stdin=subprocess.DEVNULL,
                          capture_output=True)
    if done.returncode != 0:
        return None
    text = base + done.stdout + " ".join(arguments).encode()
    return hashlib.sha256(text.replace(bytes(ROOT), b"")).hexdigest()


def check(file, arguments, directory, checks):
    # What only GCC knows is not clang's to complain about.
    known = [word for word in arguments if not re.match(r"-W|-fno-sanitize-recover", word)]
    done = subprocess.run([TIDY, "--quiet", *checks, str(file), "--", "-x", "c++", *known, "-w"], cwd=directory,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return done.returncode == 0, done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", help="regular expression on paths")
    options = parser.parse_args()
    if shutil.which(TIDY) is None:
        sys.exit(f"tidy.py: there is no {TIDY} here; scripts/install_packages.sh --lint installs it on Debian 12.")
    started = time.monotonic()
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "tandem" / "lint"
    cache.mkdir(parents=True, exist_ok=True)
    for entry in cache.iterdir():
        if entry.stat().st_mtime < time.time() - FORGOTTEN_AFTER:
            entry.unlink(missing_ok=True)
    version = subprocess.run([TIDY, "--version"], capture_output=True, check=True).stdout
    base = (ROOT / ".clang-tidy").read_bytes() + re.sub(rb"Host CPU.*", b"", version)
    # Test code keeps the checks for mistakes; GoogleTest's macros are not ours to shape.
    test_checks = ["--checks=-performance-*,-bugprone-unchecked-optional-access,-bugprone-unused-return-value,"
                   "-bugprone-unchecked-string-to-number-conversion,-bugprone-command-processor,-bugprone-float-loop-counter,"
                   "-readability-container-size-empty,-cppcoreguidelines-*,-modernize-*"]

    def work(task):
        file, compiler, arguments, directory = task
        checks = test_checks if file.relative_to(ROOT).parts[0] == "tests" else []
        name = key(base + " ".join(checks).encode(), file, compiler, arguments, directory)
        if name is not None and (cache / name).exists():
            (cache / name).touch()
            return file, True, "", True
        clean, text = check(file, arguments, directory, checks)
        if clean and name is not None:
            (cache / name).touch()
        return file, clean, text, False

    tasks = [task for task in commands(ROOT / "build/files/compile_commands.json")
             if not options.only or re.search(options.only, str(task[0].relative_to(ROOT)))]
    bad = fresh = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for file, clean, text, cached in pool.map(work, tasks):
            fresh += not cached
            if not clean:
                bad += 1
                print(text.strip() or f"{file}: clang-tidy failed without a word", flush=True)
    print(f"clang-tidy: {len(tasks)} files, {fresh} checked now, {bad} with findings, "
          f"{time.monotonic() - started:.0f} s.")
    sys.exit(bad != 0)


main()
