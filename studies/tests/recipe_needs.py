"""What the tests of studies/recipe share: where it lies, and what they skip without."""
import importlib.metadata
import importlib.util
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "studies/recipe"))

MISSING = [m for m in ("torch", "sentencepiece", "numpy") if importlib.util.find_spec(m) is None]
if "torch" not in MISSING and [int(n) for n in importlib.metadata.version("torch").split(".")[:2]] < [2, 9]:
    MISSING.append("torch 2.9 or newer")
needs_torch = unittest.skipIf(MISSING, f"not installed: {', '.join(MISSING)}")
