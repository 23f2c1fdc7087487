"""What tests of scripts run: the program under test, which `--tandem FILE` names (`tandem` of the PATH where it does not), and a Python with
a package that only Debian's may have."""
import importlib.util
import os
import subprocess
import sys
import unittest

path = "tandem"
DEBIANS = "/usr/bin/python3"


def need(package):
    """Goes on in Debian's Python where this one lacks the package; exit code 77 where that one does, too."""
    if importlib.util.find_spec(package) is not None:
        return
    there = os.path.exists(DEBIANS) and subprocess.run([DEBIANS, "-c", f"import {package}"], capture_output=True, check=False).returncode == 0
    if not there or os.path.realpath(sys.executable) == os.path.realpath(DEBIANS):
        print(f"skipped: {package} is not installed")
        sys.exit(77)
    os.execv(DEBIANS, [DEBIANS, *sys.argv])


def main():
    """unittest's, behind that option."""
    global path
    if "--tandem" in sys.argv:
        at = sys.argv.index("--tandem")
        path = sys.argv[at + 1]
        del sys.argv[at:at + 2]
    unittest.main()
