"""Tests of link_bench as its users see it: exit status, standard output, standard error.

usage: link_bench_test.py PROGRAM
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = ""
SMALL = ["--device", "host", "--repetitions", "2"]


def run(*arguments):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("EBB_")}
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, env=environment, check=False)


class LinkBenchTest(unittest.TestCase):
    def succeeds(self, *arguments):
        result = run(*arguments)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result

    def refused(self, status, text, *arguments):
        result = run(*arguments)
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        self.assertIn(text, result.stderr)
        self.assertEqual(result.stdout, "")

    def test_json_has_both_sides_of_each_cell_and_the_calls(self):
        result = self.succeeds(*SMALL, "--size", "4KiB", "--size", "64KiB", "--json")
        report = json.loads(result.stdout)
        self.assertEqual([cell["name"] for cell in report["cells"]],
                         [f"{way} {beside} {size}" for size in ("4KiB", "64KiB") for beside in ("alone", "together")
                          for way in ("d2h", "h2d")])
        for cell in report["cells"]:
            for side in ("plain", "ebb"):
                self.assertEqual(cell[side]["repetitions"], 2)
                self.assertGreater(cell[side]["bytes_per_second"], 0)
        self.assertEqual([calls["size_bytes"] for calls in report["calls"]], [4096, 65536])
        self.assertIsNone(report["calls"][0]["cuda"])
        self.assertEqual(report["context"]["device"], "host")

    def test_the_table_has_units_and_out_has_the_json(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            result = self.succeeds(*SMALL, "--size", "4KiB", "--only", "d2h alone", "--out", path)
            self.assertIn("plain, GB/s", result.stdout)
            self.assertNotIn("per activation", result.stdout)
            with open(path, encoding="utf-8") as file:
                self.assertEqual(len(json.load(file)["cells"]), 1)

    def test_a_file_that_cannot_be_written_is_a_failure(self):
        result = run(*SMALL, "--size", "4KiB", "--only", "d2h alone", "--out", "/nowhere/out.json")
        self.assertEqual(result.returncode, 1)
        self.assertIn("/nowhere/out.json", result.stderr)

    def test_wrong_usage(self):
        self.refused(2, "--size 3", "--size", "3")
        self.refused(2, "--size 1MB", "--size", "1MB")
        self.refused(2, "--device", "--device", "abacus")
        self.refused(2, "nothing has", "--only", "sideways")
        self.refused(2, "--repetitions", "--repetitions", "0")
        self.refused(2, "--full", "--full", "--size", "4KiB")
        self.refused(2, "--colour", "--colour", "red")

    @unittest.skipIf(os.path.exists("/dev/nvidia0"), "there is a GPU")
    def test_without_a_gpu_cuda_is_a_failure_and_auto_says_why_it_is_the_host(self):
        self.refused(1, "CUDA", "--device", "cuda", "--size", "4KiB")
        result = self.succeeds("--size", "4KiB", "--only", "d2h alone", "--repetitions", "1")
        self.assertIn("on the host device, since", result.stderr)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
