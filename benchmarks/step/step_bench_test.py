"""Tests of step_bench as its users see it, on the host device.

usage: step_bench_test.py DIRECTORY_OF_PROGRAMS CASE
"""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "training"))
from program_case import MODES, ProgramCase, main  # noqa: E402

# Layers so small that a step takes milliseconds. All is offloaded, and copies take about as long as computing.
SMALL = ["--layers=4", "--width=64", "--heads=2", "--sequence=64", "--micro-batch=4", "--floor=1", "--steps=4",
         "--device-memory=12MiB", "--d2h-rate=1GB", "--h2d-rate=1GB"]
DENSE = [*SMALL, "--ffn=128"]
MOE = [*SMALL, "--model=moe", "--ffn=32", "--experts=8", "--top-k=2"]
MEMORY = ["activations", "staging", "attention_workspace", "collectives", "weights", "scratch", "rest", "in_all"]


def step(*arguments):
    return ProgramCase.run_program("step_bench", *arguments)


class comparison(ProgramCase):
    MODEL = DENSE

    @classmethod
    def setUpClass(cls):
        cls.result = step(*cls.MODEL, "--json")
        cls.report = json.loads(cls.result.stdout) if cls.result.returncode == 0 else None

    def setUp(self):
        self.succeeds(self.result)
        self.rows = {row["mode"]: row for row in self.report["modes"]}

    def test_every_mode_has_a_row_with_all_columns(self):
        self.assertEqual(list(self.rows), MODES)
        keys = ["mode", "micro_batch", "status", "step_ms", "tokens_per_s", "device_peak_bytes", "pinned_peak_bytes",
                "hidden_ms", "exposed_ms", "losses", "predicted_ms", "difference", "device_memory_bytes"]
        for row in self.report["modes"]:
            self.assertEqual(list(row), keys)
            self.assertEqual(row["status"], "ok")
            self.assertEqual(list(row["device_memory_bytes"]), MEMORY)

    def test_losses_are_the_same_bits_and_fall(self):
        expected = self.rows["keep"]["losses"]
        self.assertEqual(len(expected), 4)
        for mode in MODES:
            self.assertEqual(self.rows[mode]["losses"], expected, mode)
        losses = [float.fromhex(text) for text in expected]
        self.assertLess(abs(losses[0] - 5.55), 1.0, "untrained, a byte of 256 costs about log(256)")
        self.assertLess(losses[-1], losses[0])

    def test_the_planner_predicts_what_it_plans(self):
        for mode in MODES:
            row = self.rows[mode]
            planned = mode in ("keep", "recompute", "offload-auto")
            self.assertEqual(row["predicted_ms"] is not None, planned, mode)
            if planned:
                self.assertGreater(row["predicted_ms"], 0)
                self.assertAlmostEqual(row["difference"], row["predicted_ms"] / row["step_ms"] - 1)
        self.assertGreater(self.rows["recompute"]["predicted_ms"], self.rows["keep"]["predicted_ms"])

    def test_offload_moves_bytes_and_keep_does_not(self):
        for mode in MODES:
            moves = mode.startswith("offload")
            self.assertEqual(self.rows[mode]["pinned_peak_bytes"] > 0, moves, mode)

    def test_memory_adds_up(self):
        for mode in MODES:
            memory = self.rows[mode]["device_memory_bytes"]
            self.assertEqual(sum(memory[kind] for kind in MEMORY[:-1]), memory["in_all"], mode)
            self.assertEqual(memory["in_all"], self.rows[mode]["device_peak_bytes"], mode)
            # What is not known is the arena's rounding, and staging of the first step.
            self.assertLess(memory["rest"], memory["in_all"] / 4, mode)
            self.assertEqual(memory["staging"] > 0 or mode == "offload-lhs", mode.startswith("offload"), mode)
        kept = self.rows["keep"]["device_memory_bytes"]
        for mode in MODES[1:]:
            memory = self.rows[mode]["device_memory_bytes"]
            self.assertEqual(memory["weights"], kept["weights"])
            self.assertEqual(memory["scratch"], kept["scratch"])
            self.assertLess(memory["activations"] + memory["staging"], kept["activations"], mode)

    def test_the_tables_say_the_same(self):
        text = self.succeeds(step(*self.MODEL, "--modes=keep,offload-auto")).stdout
        self.assertRegex(text, r"(?m)^mode +micro batch +step, ms +tokens/s +device peak, MiB +pinned host, MiB +"
                               r"hidden, ms +exposed, ms +predicted, ms +difference, % +loss$")
        self.assertRegex(text, r"(?m)^keep +4( +\d+\.?\d*){7} +[+-]\d+\.\d +\d")
        self.assertRegex(text, r"(?m)^device memory, MiB +micro batch +activations +staging .* rest +in all$")
        self.assertRegex(text, r"(?m)^offload-auto +4( +\d+\.\d){8}$")


class comparison_moe(comparison):
    MODEL = MOE

    def test_its_context(self):
        self.assertEqual(self.report["context"]["model"], "moe")
        self.assertEqual(self.report["context"]["experts"], 8)


class checks(ProgramCase):
    def test_all_is_good_on_the_host(self):
        report = self.json_of(step("--check", "--json"))
        self.assertTrue(report["good"])
        self.assertEqual(len({row["name"] for row in report["operations"]}), 20)
        for row in report["operations"]:
            self.assertTrue(row["good"] and row["repeatable"], row)
        self.assertEqual([row["name"] for row in report["trainings"]],
                         [f"{model} {mode}" for model in ("dense", "moe") for mode in MODES])
        for row in report["trainings"]:
            self.assertTrue(row["same"], row)


class limits(ProgramCase):
    def test_out_of_device_memory_is_a_row(self):
        report = self.json_of(step(*DENSE, "--modes=keep,offload-auto", "--micro-batch=4", "--large-micro-batch=16",
                                   "--device-memory=16MiB", "--json"))
        rows = {(row["mode"], row["micro_batch"]): row for row in report["modes"]}
        self.assertEqual(rows["keep", 16]["status"], "out_of_memory")
        self.assertIsNone(rows["keep", 16]["predicted_ms"])
        self.assertEqual(rows["keep", 4]["status"], "ok")

    def test_verified_copies(self):
        rows = self.json_of(step(*MOE, "--modes=keep,offload-auto", "--verify", "--json"))["modes"]
        self.assertEqual(rows[0]["losses"], rows[1]["losses"])

    def test_accumulation(self):
        rows = self.json_of(step(*DENSE, "--modes=keep,recompute,offload-auto", "--accumulation=3", "--json"))["modes"]
        self.assertEqual(rows[0]["losses"], rows[1]["losses"])
        self.assertEqual(rows[0]["losses"], rows[2]["losses"])


class gpu_that_is_not_there(ProgramCase):
    def test_one_line_says_so(self):
        # Hides a GPU that is there. What the line says depends on the build and the driver.
        for arguments in [[], ["--check"], ["--json", "--model=moe"]]:
            result = ProgramCase.run_program("step_bench", "--device=cuda", *arguments, CUDA_VISIBLE_DEVICES="")
            self.fails(result, 1)
            self.assertRegex(result.stderr, r"\Astep_bench: --device cuda: .*--device host\n\Z")
            self.assertEqual(result.stdout, "")


class wrong_usage(ProgramCase):
    def test_options_that_cannot_be(self):
        self.fails(step("--layers=0"), 2, "--layers")
        self.fails(step("--modes=magic"), 2, "magic")
        self.fails(step("--device=abacus"), 2, "abacus")
        self.fails(step("--model=sparse"), 2, "sparse")
        self.fails(step("--speed=11"), 2, "--speed")
        self.fails(step("--gpus=0"), 2, "--gpus")
        self.fails(step("--gpus=many"), 2, "--gpus")

    def test_options_that_do_not_fit_each_other(self):
        self.fails(step("--width=100", "--heads=3"), 2, "--width 100", "--heads 3")
        self.fails(step("--model=moe", "--experts=2", "--top-k=3"), 2, "--top-k 3", "--experts 2")
        self.fails(step("--gpus=2"), 2, "--gpus", "cuda")
        self.fails(step("--gpus=all"), 2, "--gpus", "cuda")
        self.fails(step("--device=cuda", "--width=1000", "--heads=10"), 2, "--width 1000", "128")

    def test_help_names_modes_and_the_sizes_of_the_device_asked_for(self):
        text = self.succeeds(step("--help")).stdout
        for mode in MODES:
            self.assertIn(mode, text)
        self.assertRegex(text, r"--width INT[^\n]*=128\b")
        self.assertRegex(self.succeeds(step("--device", "cuda", "--help")).stdout, r"--width INT[^\n]*=6144\b")


if __name__ == "__main__":
    main()
