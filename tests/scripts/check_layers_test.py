"""Tests of scripts/check_layers.py, on trees of a few files and on this one."""
import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import check_layers

GOOD = {
    "engine/common/error.h": "#include <string>\n",
    "engine/device/device.h": '#include "engine/common/error.h"\n',
    "engine/kernels/cuda/device.cuh": '#include "tests/engine/kernels/cuda_emulator/language.cuh"\n',
    "engine/runtime/ops.h": '#include "engine/device/device.h"\n#include "engine/common/error.h"\n',
    "engine/mechanisms/residency/residency.h": '#include "engine/runtime/ops.h"\n',
    "engine/mechanisms/residency/kernels/split.h": '#include "engine/kernels/cuda/device.cuh"\n',
    "engine/mechanisms/digests/digests.h": '#include "engine/mechanisms/residency/residency.h"\n',
    "engine/mechanisms/digests/kernels/score.cc": '#include "engine/mechanisms/residency/kernels/split.h"\n',
    "methods/registry.h": '#include "engine/common/error.h"\n',
    "methods/registry.cc": '#include "methods/hgca/hgca.h"\n',
    "methods/hgca/hgca.h": '#include "methods/registry.h"\n#include "engine/mechanisms/digests/digests.h"\n#include "options.h"\n',
    "eval/run/run.cc": '#include "methods/registry.h"\n',
    "cli/main.cc": '// #include "tests/none.h"\n#include "eval/run/run.h"\n',
}


class CheckLayersTest(unittest.TestCase):
    def said(self, files: dict[str, str]) -> list[str]:
        """What is said of GOOD with these files in place of its own or beside them."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {**GOOD, **files}.items():
                file = Path(folder) / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            written = io.StringIO()
            with (mock.patch.object(sys, "argv", ["check_layers.py", folder]), contextlib.redirect_stdout(io.StringIO()),
                  contextlib.redirect_stderr(written)):
                code = check_layers.main()
            lines = written.getvalue().splitlines()
            self.assertEqual(code, 1 if lines else 0)
            return lines

    def test_a_tree_that_keeps_to_the_layers_passes(self):
        self.assertEqual(self.said({}), [])

    def test_this_tree_passes(self):
        self.assertEqual(check_layers.complaints(ROOT), [])

    def test_an_upward_include_names_file_line_and_include(self):
        self.assertEqual(self.said({"engine/device/device.h": '#pragma once\n  #  include "engine/kernels/topk.h"\n'}), [
            'check_layers.py: engine/device/device.h:2 includes "engine/kernels/topk.h", but engine/device may include only '
            "engine/common: move what it needs down into a folder that it may include, or move engine/device/device.h up."])
        for file, include in (("engine/common/error.h", "engine/device/device.h"), ("engine/runtime/ops.h", "methods/registry.h"),
                              ("engine/runtime/ops.h", "engine/mechanisms/digests/digests.h"), ("methods/hgca/hgca.h", "eval/run/run.h"),
                              ("engine/kv/kv_store.h", "engine/runtime/ops.h"), ("eval/run/run.cc", "cli/session.h"),
                              ("engine/mechanisms/digests/kernels/score.cc", "engine/runtime/ops.h"),
                              ("engine/kernels/topk.h", "engine/mechanisms/digests/kernels/score.h")):
            said = self.said({file: f'#include "{include}"\n'})
            self.assertEqual(len(said), 1, (file, said))
            self.assertIn(f'{file}:1 includes "{include}"', said[0])

    def test_a_cycle_names_its_folders_and_includes(self):
        said = self.said({"engine/mechanisms/residency/residency.h": '#include "engine/mechanisms/digests/digests.h"\n'})
        self.assertEqual(said, [
            "check_layers.py: The folders engine/mechanisms/digests and engine/mechanisms/residency include each other: "
            'engine/mechanisms/digests/digests.h:1 includes "engine/mechanisms/residency/residency.h" and '
            'engine/mechanisms/residency/residency.h:1 includes "engine/mechanisms/digests/digests.h". Move what they share into a '
            "folder below them, or make them one folder."])
        ring = {f"eval/{a}/{a}.h": f'#include "eval/{b}/{b}.h"\n' for a, b in (("run", "report"), ("report", "gate"), ("gate", "run"))}
        said = self.said(ring)
        self.assertEqual(len(said), 1, said)
        self.assertIn("The folders eval/gate, eval/run and eval/report include each other", said[0])

    def test_only_the_list_of_methods_may_name_them(self):
        said = self.said({"methods/registry.h": '#include "methods/hgca/hgca.h"\n'})
        self.assertEqual(len(said), 1, said)
        self.assertIn("The folders methods and methods/hgca include each other", said[0])

    def test_tests_and_unknown_folders_are_refused(self):
        said = self.said({"engine/kernels/topk.cc": '#include "tests/engine/kernels/cuda_emulator/language.cuh"\n',
                          "engine/network/socket.h": '#include "engine/common/error.h"\n'})
        self.assertEqual(len(said), 2, said)
        self.assertIn("only tests may include tests", said[0])
        self.assertIn("engine/network/socket.h:1", said[1])
        self.assertIn("add the folder to ALLOWED", said[1])


if __name__ == "__main__":
    unittest.main()
