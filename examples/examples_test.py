"""Tests of the example programs as their users see them: exit status, standard output, standard error.

usage: examples_test.py DIRECTORY_OF_PROGRAMS CASE
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "examples", "training"))
from program_case import MODES, ProgramCase, main  # noqa: E402

# Eight layers of a model so small that a step takes milliseconds; 4 KiB is the floor, so that all but the
# softmax's sums is offloaded.
SMALL = ["--layers=8", "--width=32", "--heads=2", "--ffn=64", "--sequence=64", "--micro-batch=4", "--floor=4KiB",
         "--device-memory=5MiB", "--d2h-rate=0", "--h2d-rate=0"]

run = ProgramCase.run_program


def unindented(code):
    return "".join(line.strip() + "\n" for line in code.splitlines())


def train(*arguments):
    return run("train_transformer", *arguments)


class TestCase(ProgramCase):
    def loop_compares(self, device):
        text = self.succeeds(run("custom_loop", "--device", device, "--steps", "4")).stdout
        self.assertIn("the losses are the same, bit for bit", text)
        rows = [line for line in text.splitlines() if "computed again" in line]
        self.assertEqual(len(rows), 2, text)
        self.assertIn("offloaded 0, computed again 0;", rows[0])
        self.assertNotIn("offloaded 0,", rows[1])
        self.assertNotIn("computed again 0;", rows[1])
        self.assertNotIn(" 0 KiB copied", rows[1])

    def trained(self, *arguments):
        return self.json_of(train("--json", *arguments))


class small_programs(TestCase):
    def test_minimal(self):
        self.assertIn("went and came back", self.succeeds(run("minimal")).stdout)

    def test_readme_shows_what_is_compiled(self):
        with open(os.path.join(ROOT, "examples", "minimal.c"), encoding="utf-8") as file:
            source = file.read()
        shown = source.split("/* clang-format off */\n")[1].split("    /* clang-format on */")[0]
        with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
            readme = file.read()
        self.assertIn("```c\n" + textwrap.dedent(shown) + "```\n", readme)

    def test_cuda_page_shows_what_is_compiled(self):
        sources = ""
        for name in ["custom_loop/custom_loop.c", "custom_loop/cuda_loop_device.cu", "nccl_overlap.cu"]:
            with open(os.path.join(ROOT, "examples", name), encoding="utf-8") as file:
                sources += file.read()
        with open(os.path.join(ROOT, "docs", "custom_cuda_loop.md"), encoding="utf-8") as file:
            blocks = file.read().split("```")[1::2]
        self.assertGreater(len(blocks), 2)
        for block in blocks:
            code = block.split("\n", 1)[1]
            self.assertIn(unindented(code), unindented(sources))

    def test_custom_loop_offloads_recomputes_and_compares(self):
        self.loop_compares("host")

    def test_custom_loop_refuses(self):
        self.fails(run("custom_loop", "--device", "null"), 2, "computes and copies nothing")
        self.fails(run("custom_loop", "--device", "abacus"), 2, "abacus")
        self.fails(run("custom_loop", "--steps", "0"), 2, "--steps")
        self.fails(run("custom_loop", "--steps", "4x"), 2, "4x")
        self.fails(run("custom_loop", "--steps"), 2, "--steps")
        self.fails(run("custom_loop", "--colour", "red"), 2, "--colour")

    def test_custom_loop_says_why_it_has_no_gpu(self):
        # Hides a GPU that is there. What the line says depends on the build and the driver.
        result = run("custom_loop", "--device", "cuda", CUDA_VISIBLE_DEVICES="")
        self.fails(result, 1)
        self.assertRegex(result.stderr, r"\Acustom_loop: --device cuda: .+; .+, or use --device host\n\Z")
        self.assertEqual(result.stdout, "")


class nccl_without_a_gpu(TestCase):
    def test_it_says_why_it_has_no_gpu(self):
        result = run("nccl_overlap", CUDA_VISIBLE_DEVICES="")
        self.fails(result, 1)
        self.assertRegex(result.stderr, r"\Anccl_overlap: no NVIDIA GPU can be used: .+; run it where .+\n\Z")
        self.assertEqual(result.stdout, "")


class custom_loop_on_a_gpu(TestCase):
    def test_custom_loop_offloads_recomputes_and_compares(self):
        self.loop_compares("cuda")


class nccl_on_a_gpu(TestCase):
    def test_every_number_comes_back_right(self):
        text = self.succeeds(run("nccl_overlap")).stdout
        gigabytes = r"[1-9]\d*\.\d+ GB"
        self.assertRegex(text, rf"\A(GPU \d+: {gigabytes} to the host, {gigabytes} back, 0 numbers wrong\n)+\Z")


class comparison(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.result = train(*SMALL, "--large-micro-batch=16", "--steps=4", "--json",
                           *[f"--mode={mode}" for mode in MODES])
        cls.report = json.loads(cls.result.stdout) if cls.result.returncode == 0 else None

    def setUp(self):
        self.succeeds(self.result)
        self.rows = {(row["mode"], row["micro_batch"]): row for row in self.report["modes"]}

    def test_every_mode_has_a_row(self):
        expected = [(mode, 4) for mode in MODES] + [("keep", 16), ("offload-auto", 16)]
        self.assertEqual([(row["mode"], row["micro_batch"]) for row in self.report["modes"]], expected)
        keys = ["mode", "micro_batch", "status", "step_ms", "tokens_per_s", "device_peak_bytes", "pinned_peak_bytes",
                "hidden_ms", "exposed_ms", "losses"]
        for row in self.report["modes"]:
            self.assertEqual(list(row), keys)

    def test_losses_are_the_same_bits(self):
        expected = self.rows["keep", 4]["losses"]
        self.assertEqual(len(expected), 4)
        for mode in MODES:
            self.assertEqual(self.rows[mode, 4]["losses"], expected, mode)

    def test_losses_are_those_of_training(self):
        losses = [float.fromhex(text) for text in self.rows["keep", 4]["losses"]]
        self.assertLess(abs(losses[0] - 5.55), 1.0, "untrained, a byte of 256 costs about log(256)")
        self.assertLess(losses[-1], losses[0])

    def test_keep_runs_out_of_memory_where_offload_trains(self):
        self.assertEqual(self.rows["keep", 16]["status"], "out_of_memory")
        self.assertEqual(self.rows["keep", 16]["losses"], [])
        self.assertIsNone(self.rows["keep", 16]["step_ms"])
        self.assertIn("EBB_OUT_OF_DEVICE_MEMORY", self.result.stderr)
        self.assertEqual(self.rows["offload-auto", 16]["status"], "ok")
        self.assertEqual(len(self.rows["offload-auto", 16]["losses"]), 4)

    def test_offload_moves_bytes_and_keep_does_not(self):
        for mode in MODES:
            row = self.rows[mode, 4]
            self.assertEqual(row["status"], "ok")
            self.assertGreater(row["step_ms"], 0)
            self.assertGreater(row["tokens_per_s"], 0)
            moves = mode.startswith("offload")
            self.assertEqual(row["pinned_peak_bytes"] > 0, moves, mode)
            self.assertEqual(row["hidden_ms"] + row["exposed_ms"] > 0, moves, mode)

    def test_offload_and_recompute_take_less_of_the_device(self):
        kept = self.rows["keep", 4]["device_peak_bytes"]
        for mode in MODES[1:]:
            self.assertLess(self.rows[mode, 4]["device_peak_bytes"], kept, mode)

    def test_the_table_says_the_same(self):
        text = self.succeeds(train(*SMALL, "--steps=1", "--mode=keep", "--mode=offload-auto")).stdout
        self.assertRegex(text, r"(?m)^mode +micro batch +step, ms +tokens/s +device peak, MiB +pinned host, MiB +"
                               r"hidden, ms +exposed, ms +loss$")
        self.assertRegex(text, r"(?m)^keep +4 +\d")
        self.assertRegex(text, r"(?m)^offload-auto +4 +\d")

    def test_another_seed_gives_other_losses(self):
        one = self.trained(*SMALL, "--steps=2", "--mode=keep")["modes"][0]["losses"]
        again = self.trained(*SMALL, "--steps=2", "--mode=keep")["modes"][0]["losses"]
        other = self.trained(*SMALL, "--steps=2", "--mode=keep", "--seed=2")["modes"][0]["losses"]
        self.assertEqual(one, again)
        self.assertNotEqual(one, other)

    def test_verified_copies(self):
        rows = self.trained(*SMALL, "--steps=3", "--mode=keep", "--mode=offload-auto", "--verify")["modes"]
        self.assertEqual(rows[0]["losses"], rows[1]["losses"])


class default_sizes(TestCase):
    def test_device_peak_with_offload_is_at_most_half(self):
        report = self.trained("--steps=2", "--accumulation=1", "--mode=keep", "--mode=offload-sync",
                              "--mode=offload-lhs", "--mode=offload-pipelined", "--mode=offload-auto")
        self.assertGreaterEqual(report["context"]["layers"], 8)
        self.assertGreaterEqual(report["context"]["saved_bytes_per_micro_batch"], 256 << 20)
        kept = report["modes"][0]
        self.assertEqual(kept["status"], "ok")
        for row in report["modes"][1:]:
            self.assertEqual(row["status"], "ok")
            self.assertEqual(row["losses"], kept["losses"])
            self.assertLessEqual(row["device_peak_bytes"], kept["device_peak_bytes"] / 2, row["mode"])


class wrong_usage(TestCase):
    def test_sizes_that_cannot_be(self):
        for option in ["--layers", "--width", "--heads", "--ffn", "--sequence", "--micro-batch", "--accumulation",
                       "--steps"]:
            for value in ["0", "-1", "many", "99999999999999999999", "9000000000"]:
                self.fails(train(f"{option}={value}"), 2, option)

    def test_sizes_that_do_not_fit_each_other(self):
        self.fails(train("--width=100", "--heads=3"), 2, "--width 100", "--heads 3")

    def test_more_memory_than_there_is(self):
        self.fails(train("--device-memory=0"), 2, "--device-memory")
        self.fails(train("--device-memory=900TiB"), 2, "--device-memory")
        self.fails(train("--host-memory=900TiB"), 2, "--host-memory")
        self.fails(train("--device-memory=99999999999999999999GiB"), 2, "--device-memory")
        self.fails(train("--layers=30000", "--width=32768", "--micro-batch=32000"), 2, "GiB")

    def test_names_that_are_none(self):
        self.fails(train("--mode=magic"), 2, "magic")
        self.fails(train("--speed=11"), 2, "--speed")

    def test_help_names_the_modes(self):
        text = self.succeeds(train("--help")).stdout
        for mode in MODES:
            self.assertIn(mode, text)


class wrong_text(TestCase):
    def test_text_that_cannot_be_read(self):
        with tempfile.TemporaryDirectory() as folder:
            missing = os.path.join(folder, "missing.txt")
            self.fails(train(f"--text={missing}"), 1, "missing.txt", "No such file")
            self.fails(train(f"--text={folder}"), 1, folder, "directory")

    def test_text_that_is_too_short(self):
        with tempfile.NamedTemporaryFile() as text:
            self.fails(train(*SMALL, f"--text={text.name}"), 1, text.name, "0 bytes", "65")
            text.write(b"x" * 64)
            text.flush()
            self.fails(train(*SMALL, f"--text={text.name}"), 1, text.name, "64 bytes", "65")

    def test_text_that_is_just_long_enough(self):
        with tempfile.NamedTemporaryFile() as text:
            text.write(b"x" * 65)
            text.flush()
            report = self.trained(*SMALL, f"--text={text.name}", "--steps=2", "--mode=keep")
            self.assertEqual(report["context"]["text_bytes"], 65)


class limits(TestCase):
    def test_too_little_pinned_memory(self):
        result = self.succeeds(train(*SMALL, "--steps=3", "--mode=keep", "--mode=offload-auto", "--host-memory=1MiB",
                                     "--json"))
        kept, offloaded = json.loads(result.stdout)["modes"]
        self.assertEqual(offloaded["status"], "ok")
        self.assertLessEqual(offloaded["pinned_peak_bytes"], 1 << 20)
        self.assertEqual(offloaded["losses"], kept["losses"])
        self.assertIn("--host-memory", result.stderr)

    def test_too_little_of_both(self):
        result = self.succeeds(train(*SMALL, "--steps=3", "--mode=offload-auto", "--host-memory=1MiB",
                                     "--device-memory=3MiB", "--json"))
        self.assertEqual(json.loads(result.stdout)["modes"][0]["status"], "out_of_memory")

    def test_too_little_device_memory_for_the_weights(self):
        result = self.succeeds(train(*SMALL, "--steps=3", "--mode=keep", "--device-memory=64KiB", "--json"))
        self.assertEqual(json.loads(result.stdout)["modes"][0]["status"], "out_of_memory")


class interrupt(TestCase):
    def test_ctrl_c_releases_everything(self):
        for arguments in [[], ["--mode=offload-auto"], ["--mode=recompute"]]:
            with subprocess.Popen([self.path_of("train_transformer"), *SMALL, "--steps=1000000", *arguments],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
                process.stdout.readline()  # the first line comes after the handler was set
                process.send_signal(signal.SIGINT)
                _, errors = process.communicate()
            self.assertEqual(process.returncode, 130, errors)
            self.assertEqual(errors, "train_transformer: interrupted; everything was released\n")


if __name__ == "__main__":
    main()
