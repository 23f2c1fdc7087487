"""The program under test, which `--tandem FILE` names: `tandem` of the PATH where it does not."""
import sys
import unittest

path = "tandem"


def main():
    """unittest's, behind that option."""
    global path
    if "--tandem" in sys.argv:
        at = sys.argv.index("--tandem")
        path = sys.argv[at + 1]
        del sys.argv[at:at + 2]
    unittest.main()
