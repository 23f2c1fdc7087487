"""clang-tidy over build/release/compile_commands.json, skipping what was found clean before. Called by lint.sh.

It looks at what the build compiles: several sources of a target at once, whose headers are then parsed once (2 cores,
Zen 5, nothing cached: 292 to 328 s instead of 819 s file by file). What is compiled alone is looked at alone.

That misses what one source alone would show: an #include that it lacks and another one before it has, and
using-declarations and namespace aliases that nothing uses, which clang-tidy looks for in main files alone. So --each adds
a second pass, over build/files/compile_commands.json, which parses each of these sources by itself with no more than the
checks for the latter: 2.1 s of CPU time a file (mean of 12 files, 0.6 to 3.0 s, with something else running), as many as
the compiler takes with -fsyntax-only, which would find the former alone.

The key of what is compiled together is the hash of .clang-tidy, the clang-tidy version, the checks and the preprocessed
text, so that a changed header re-checks what includes it and nothing else. To preprocess each source by itself takes
0.7 s of CPU time, so there it is the text of the source and of all that it includes of this checkout, and the
compiler's version for the rest. Only clean results are kept, in ~/.cache/tandem/lint (XDG_CACHE_HOME), so that all
checkouts of one machine share them; the checkout's own path does not count.
"""
import argparse
import concurrent.futures
import functools
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
ALONE = ["--checks=-*,misc-unused-using-decls,misc-unused-alias-decls"]
FORGOTTEN_AFTER = 30 * 24 * 3600  # seconds since a result was last of use


def sources_of(file):
    """What a file that CMake generated for several sources includes; else the file itself."""
    if file.suffix != ".cxx":
        return (file,)
    return tuple(pathlib.Path(name) for name in re.findall(r'(?m)^#include "(.*)"$', file.read_text()))


def is_ours(source):
    return source.suffix == ".cc" and source.is_relative_to(ROOT) and source.relative_to(ROOT).parts[0] in FOLDERS


def commands(database):
    """(file, its sources, compiler, arguments without output, launcher and compiler, folder) of what the build compiles, each set of
    sources once: kernels are compiled for several instruction sets."""
    seen = set()
    for entry in json.loads(database.read_text()):
        file = pathlib.Path(entry["directory"], entry["file"]).resolve()
        sources = sources_of(file)
        if sources in seen or not all(map(is_ours, sources)):
            continue
        seen.add(sources)
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
        yield file, sources, words[0], arguments, entry["directory"]


def key(base, file, compiler, arguments, directory):
    done = subprocess.run([compiler, *arguments, "-E", "-P", "-C", str(file)], cwd=directory, stdin=subprocess.DEVNULL,
                          capture_output=True)
    if done.returncode != 0:
        return None
    text = base + done.stdout + " ".join(arguments).encode()
    return hashlib.sha256(text.replace(bytes(ROOT), b"")).hexdigest()


@functools.cache
def own_text(file):
    """(hash, what it includes of this checkout)."""
    text = file.read_bytes()
    names = re.findall(rb'(?m)^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', text)
    included = []
    for name in sorted(set(map(os.fsdecode, names))):
        included += [path for path in (ROOT / name, file.parent / name) if path.is_file()][:1]
    return hashlib.sha256(text).digest(), tuple(included)


@functools.cache
def version_of(program):
    return re.sub(rb"Host CPU.*", b"", subprocess.run([program, "--version"], capture_output=True, check=True).stdout)


def key_alone(base, file, compiler, arguments):
    found, left = {file}, [file]
    while left:
        for path in own_text(left.pop())[1]:
            if path not in found:
                found.add(path)
                left.append(path)
    texts = b"".join(os.fsencode(path.relative_to(ROOT)) + own_text(path)[0] for path in sorted(found))
    what = " ".join(arguments).encode().replace(bytes(ROOT), b"")
    return hashlib.sha256(b"\n".join((base, version_of(compiler), what, texts))).hexdigest()


def check(file, arguments, directory, checks):
    # What only GCC knows is not clang's to complain about.
    known = [word for word in arguments if not re.match(r"-W|-fno-sanitize-recover", word)]
    done = subprocess.run([TIDY, "--quiet", *checks, str(file), "--", "-x", "c++", *known, "-w"], cwd=directory,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return done.returncode == 0, done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--each", action="store_true", help="each source by itself, too")
    parser.add_argument("--only", help="regular expression on paths")
    options = parser.parse_args()
    if shutil.which(TIDY) is None:
        sys.exit(f"tidy.py: there is no {TIDY} here; scripts/install_packages.sh --lint installs it on Debian 12.")
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "tandem" / "lint"
    cache.mkdir(parents=True, exist_ok=True)
    for entry in cache.iterdir():
        if entry.stat().st_mtime < time.time() - FORGOTTEN_AFTER:
            entry.unlink(missing_ok=True)
    base = (ROOT / ".clang-tidy").read_bytes() + version_of(TIDY)
    # Test code keeps the checks for mistakes; GoogleTest's macros are not ours to shape.
    test_checks = ["--checks=-performance-*,-bugprone-unchecked-optional-access,-bugprone-unused-return-value,"
                   "-bugprone-unchecked-string-to-number-conversion,-bugprone-command-processor,-bugprone-float-loop-counter,"
                   "-readability-container-size-empty,-cppcoreguidelines-*,-modernize-*"]

    def checked(name, file, arguments, directory, checks):
        """(clean, what was said, it was known before)."""
        if name is not None and (cache / name).exists():
            (cache / name).touch()
            return True, "", True
        clean, text = check(file, arguments, directory, checks)
        if clean and name is not None:
            (cache / name).touch()
        return clean, text, False

    def together(task):
        file, sources, compiler, arguments, directory = task
        checks = test_checks if sources[0].relative_to(ROOT).parts[0] == "tests" else ["--checks="]
        if file.suffix == ".cxx":
            checks = [checks[0] + ",-bugprone-suspicious-include"]
        name = key(base + " ".join(checks).encode(), file, compiler, arguments, directory)
        return sources, *checked(name, file, arguments, directory, checks)

    def alone(task):
        file, sources, compiler, arguments, directory = task
        name = key_alone(base + " ".join(ALONE).encode(), file, compiler, arguments)
        return sources, *checked(name, file, arguments, directory, ALONE)

    def tasks_of(preset):
        return [task for task in commands(ROOT / "build" / preset / "compile_commands.json")
                if not options.only or any(re.search(options.only, str(source.relative_to(ROOT))) for source in task[1])]

    units = tasks_of("release")
    looked_at = {task[1] for task in units if task[0].suffix != ".cxx"}
    files = [task for task in tasks_of("files") if task[1] not in looked_at] if options.each else []
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for work, tasks, how in ((together, units, "as they are compiled"), (alone, files, "by themselves")):
            if not tasks:
                continue
            begun, fresh, findings = time.monotonic(), 0, 0
            for sources, clean, text, cached in pool.map(work, tasks):
                fresh += 0 if cached else len(sources)
                if not clean:
                    findings += 1
                    names = ", ".join(str(source.relative_to(ROOT)) for source in sources)
                    print(text.strip() or f"{names}: clang-tidy failed without a word", flush=True)
            bad += findings
            count = len({source for task in tasks for source in task[1]})
            print(f"clang-tidy: {count} files {how}, {fresh} checked now, {'findings' if findings else 'no findings'}, "
                  f"{time.monotonic() - begun:.0f} s.", flush=True)
    sys.exit(bad != 0)


main()
