"""Tests of run_all.py with programs that are shell scripts: what it says of them, and that limits hold."""

import contextlib
import io
import json
import os
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import run_all  # noqa: E402

LINK = {
    "cells": [
        {"name": "d2h alone 1MiB", "size_bytes": 1 << 20, "ebb": {"bytes_per_second": 40e9}, "plain": {"bytes_per_second": 50e9}},
        {"name": "h2d together 16MiB", "size_bytes": 16 << 20, "ebb": {"bytes_per_second": 48e9}, "plain": {"bytes_per_second": 50e9}},
    ],
    "calls": [
        {"size_bytes": 1 << 20, "chunks": 1, "promised_calls": 5,
         "cuda": {"own_ns": 400.0, "memcpy_ns": 2300.0, "d2h_calls": 5.0, "h2d_calls": 6.0}},
    ],
}


def step_mode(name, step_ms, predicted_ms):
    difference = None if predicted_ms is None else (predicted_ms - step_ms) / step_ms
    return {"mode": name, "status": "ok", "step_ms": step_ms, "predicted_ms": predicted_ms, "difference": difference}


def by_name(figures):
    return {each["name"]: each for each in figures}


class FiguresTest(unittest.TestCase):
    def test_copies_have_a_target_from_16_mib_on(self):
        _, figures = run_all.read_link(json.dumps(LINK))
        named = by_name(figures)
        self.assertIsNone(named["link.d2h.alone.1MiB"]["met"])
        self.assertEqual(named["link.h2d.together.16MiB"]["target"], ">= 0.97")
        self.assertFalse(named["link.h2d.together.16MiB"]["met"])

    def test_calls_are_held_to_what_is_promised(self):
        named = by_name(run_all.read_link(json.dumps(LINK))[1])
        self.assertTrue(named["calls.own_time.1MiB"]["met"])
        self.assertTrue(named["calls.cuda_calls.d2h.1MiB"]["met"])
        self.assertFalse(named["calls.cuda_calls.h2d.1MiB"]["met"])

    def test_a_link_report_without_cuda_is_refused(self):
        report = json.loads(json.dumps(LINK))
        report["calls"][0]["cuda"] = None
        with self.assertRaises(run_all.Failure):
            run_all.read_link(json.dumps(report))

    def step(self, *modes):
        return by_name(run_all.read_step(json.dumps({"context": {"model": "dense"}, "modes": list(modes)}))[1])

    def test_predictions_are_held_to_three_percent_either_way(self):
        named = self.step(step_mode("keep", 100.0, 96.9), step_mode("recompute", 100.0, 103.0))
        self.assertFalse(named["step.dense.prediction.keep"]["met"])
        self.assertTrue(named["step.dense.prediction.recompute"]["met"])

    def test_automatic_mode_is_held_to_keep_where_nothing_is_exposed(self):
        hidden = self.step(step_mode("keep", 100.0, 100.0), step_mode("offload-auto", 101.5, 100.0))
        self.assertFalse(hidden["step.dense.automatic"]["met"])
        exposed = self.step(step_mode("keep", 100.0, 100.0), step_mode("offload-auto", 121.0, 120.0))
        self.assertIsNone(exposed["step.dense.automatic"]["met"])

    def test_a_mode_without_memory_has_no_figure(self):
        named = self.step({"mode": "keep", "status": "out_of_memory", "step_ms": None, "predicted_ms": None, "difference": None},
                          step_mode("offload-auto", 100.0, 99.0))
        self.assertEqual(list(named), ["step.dense.prediction.offload-auto"])

    def test_checks_that_are_not_good_are_a_failure(self):
        self.assertEqual(run_all.read_check('{"good": true}'), ({"good": True}, []))
        with self.assertRaises(run_all.Failure):
            run_all.read_check('{"good": false}')

    def test_a_test_program_that_ran_nothing_has_not_passed(self):
        self.assertEqual(run_all.read_tests("[==========] 12 tests from 3 test suites ran. (7 ms total)\n")[0], {"tests": 12})
        for printed in ("", "[==========] 0 tests from 0 test suites ran. (0 ms total)\n"):
            with self.assertRaises(run_all.Failure):
                run_all.read_tests(printed)

    def test_pytest_that_ran_nothing_or_left_the_gpu_out_has_not_passed(self):
        self.assertEqual(run_all.read_pytest("....\n301 passed, 2 warnings in 70.1s (0:01:10)\n")[0], {"tests": 301})
        for printed in ("", "no tests ran in 0.1s\n", "gpu: not run: no GPU; 2 tests need one\n299 passed, 2 deselected in 70.1s\n"):
            with self.assertRaises(run_all.Failure):
                run_all.read_pytest(printed)

    def decoder(self, **rows):
        same = True if rows else None
        return by_name(run_all.read_decoder("d", json.dumps({"losses_are_the_same": same, "rows": [
            {"mode": mode.replace("_", "-"), **row} for mode, row in rows.items()]}))[1])

    def test_modes_of_a_decoder_stand_beside_each_other(self):
        ok = {"status": "ok", "step_ms": 100.0, "device_peak_mib": 1000.0}
        named = self.decoder(keep=ok, checkpoint={**ok, "step_ms": 130.0, "device_peak_mib": 400.0},
                             ebb_offload={**ok, "step_ms": 104.0, "device_peak_mib": 300.0}, ebb={"status": "out of memory", "why": "CUDA"})
        self.assertEqual(sorted(named), ["d.ebb-offload.peak.checkpoint", "d.ebb-offload.peak.keep", "d.ebb-offload.step.checkpoint",
                                         "d.ebb-offload.step.keep"])
        self.assertAlmostEqual(named["d.ebb-offload.peak.keep"]["ratio"], 0.3)
        self.assertAlmostEqual(named["d.ebb-offload.step.checkpoint"]["ratio"], 0.8)
        with self.assertRaises(run_all.Failure):
            self.decoder()


    def test_modes_of_a_jax_decoder_stand_beside_each_other(self):
        rows = [{"mode": mode, "step_ms": 100.0 + i, "temp_mib": 50.0 - i} for i, mode in enumerate(("keep", "xla-offload", "ebb-names"))]
        named = by_name(run_all.read_jax_decoder("j", json.dumps({"rows": rows}))[1])
        self.assertEqual(sorted(named), ["j.ebb-names.step.keep", "j.ebb-names.step.xla-offload", "j.ebb-names.temp.keep",
                                         "j.ebb-names.temp.xla-offload"])
        self.assertAlmostEqual(named["j.ebb-names.temp.keep"]["ratio"], 48 / 50)
        with self.assertRaises(run_all.Failure):
            run_all.read_jax_decoder("j", json.dumps({"rows": rows[:2]}))


class PartsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def part(self, name, script, limit_s=20, read=run_all.read_text):
        program = self.folder / name
        program.write_text("#!/bin/sh\n" + script)
        program.chmod(0o755)
        return run_all.Part(name, "a script", limit_s, [], [name], read)

    def run_parts(self, *parts, all_limit_s=60):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            outcomes = run_all.run_parts(parts, self.folder, run_all.Deadline(all_limit_s), self.folder / "log")
        return outcomes, said.getvalue()

    def test_one_that_fails_does_not_stop_the_rest(self):
        outcomes, said = self.run_parts(self.part("good", "echo fine\n"), self.part("bad", "echo it broke >&2; exit 3\n"),
                                        self.part("killed", "kill -11 $$\n"),
                                        self.part("garbled", "echo no json\n", read=run_all.read_link),
                                        self.part("last", "echo fine\n"))
        self.assertEqual([each["status"] for each in outcomes], ["passed", "FAILED", "FAILED", "FAILED", "passed"])
        self.assertEqual(outcomes[1]["why"], "ended with status 3")
        self.assertEqual(outcomes[2]["why"], "ended with signal 11")
        self.assertIn("cannot be used", outcomes[3]["why"])
        self.assertIn("it broke", outcomes[1]["log"])
        self.assertIn("it broke", said)
        self.assertEqual(outcomes[0]["report"], {"printed": "fine\n"})

    def test_a_program_that_is_not_there_has_failed(self):
        outcomes, _ = self.run_parts(run_all.Part("none", "nothing", 5, [], ["none"], run_all.read_text))
        self.assertEqual(outcomes[0]["status"], "FAILED")

    def test_what_needs_a_library_that_is_not_there_is_not_run(self):
        outcomes, _ = self.run_parts(run_all.Part("none", "nothing", 5, [], ["none"], run_all.read_text, needs="NCCL"))
        self.assertEqual(outcomes[0]["status"], "not run")
        self.assertIn("NCCL", outcomes[0]["why"])

    def test_a_limit_ends_a_part_with_what_it_started(self):
        child = self.folder / "child"
        outcomes, _ = self.run_parts(self.part("slow", f"sleep 60 & echo $! >{child}; wait\n", limit_s=1), self.part("next", "true\n"))
        self.assertEqual([each["status"] for each in outcomes], ["FAILED", "passed"])
        self.assertIn("took longer than 1 s", outcomes[0]["why"])
        status = Path(f"/proc/{int(child.read_text())}/stat")
        for _ in range(100):  # it may still be on its way out
            if not status.exists() or status.read_text().rsplit(")", 1)[1].split()[0] == "Z":
                break
            time.sleep(0.05)
        else:
            self.fail("what the part started still runs")

    def test_when_all_time_is_over_the_rest_is_not_run(self):
        outcomes, _ = self.run_parts(self.part("late", "true\n"), all_limit_s=0)
        self.assertEqual(outcomes[0]["status"], "not run")

    def test_options_from_outside_do_not_reach_the_parts(self):
        os.environ["EBB_POLICY"] = "keep"
        self.addCleanup(os.environ.pop, "EBB_POLICY")
        outcomes, _ = self.run_parts(self.part("shows", 'echo "[$EBB_POLICY]"\n'))
        self.assertEqual(outcomes[0]["report"]["printed"], "[]\n")

    def test_the_page_and_the_results_say_it_all(self):
        outcomes, _ = self.run_parts(self.part("link", f"echo '{json.dumps(LINK)}'\n", read=run_all.read_link), self.part("bad", "exit 1\n"))
        context = {"commit": "abc", "gpus": ["NVIDIA H200, 580.1, 143771 MiB, 00000000:19:00.0"], "cuda": "13.0", "processors": 16,
                   "processor": "a processor", "system": "Linux 6", "date": "2026-01-02T03:04:05+00:00"}
        page = run_all.page(context, outcomes)
        for text in ("NVIDIA H200", "link  passed", "bad   FAILED", "ended with status 1", "link.h2d.together.16MiB", ">= 0.97", "NO"):
            self.assertIn(text, page)
        path = run_all.write_results(self.folder / "new" / "results", context, outcomes)
        self.assertEqual(path.name, "gpu-nvidia-h200-2026-01-02t03-04-05-00-00.json")
        written = json.loads(path.read_text())
        self.assertEqual(written["context"]["commit"], "abc")
        self.assertEqual(written["parts"][0]["report"], LINK)


class TableTest(unittest.TestCase):
    def test_all_parts_with_the_build_take_eight_minutes_at_most(self):
        for parts in (run_all.PARTS, *run_all.PLUGIN_PARTS.values()):
            self.assertLessEqual(run_all.BUILD_LIMIT_S + sum(part.limit_s for part in parts), 480)
        self.assertLessEqual(run_all.ALL_LIMIT_S, 480)

    def test_names_are_told_apart(self):
        names = [part.name for parts in (run_all.PARTS, *run_all.PLUGIN_PARTS.values()) for part in parts]
        self.assertEqual(len(names), len(set(names)))

    def test_a_mode_that_hangs_leaves_the_others_their_time(self):
        for part in run_all.PLUGIN_PARTS["torch"]:
            if "--limit-s" in part.command:
                modes = part.command[part.command.index("--modes") + 1].split(",")
                self.assertLessEqual(len(modes) * float(part.command[part.command.index("--limit-s") + 1]), part.limit_s)

    def test_parts_are_those_of_the_core_or_of_one_framework(self):
        self.assertEqual(run_all.arguments_of(["--plugin", "jax"]).parts, run_all.PLUGIN_PARTS["jax"])
        self.assertEqual(run_all.arguments_of([]).parts, run_all.PARTS)
        self.assertEqual(run_all.arguments_of(["--plugin", "torch"]).parts, run_all.PLUGIN_PARTS["torch"])
        self.assertEqual([part.name for part in run_all.arguments_of(["--plugin", "torch", "--part", "torch_decoder"]).parts],
                         ["torch_decoder"])

    def test_wrong_usage_is_status_2(self):
        for wrong in (["--part", "nothing"], ["--part", "torch_tests"], ["--plugin", "torch", "--part", "link"], ["--plugin", "none"],
                      ["--nothing"], ["--out"]):
            with self.assertRaises(SystemExit) as ended, contextlib.redirect_stderr(io.StringIO()):
                run_all.arguments_of(wrong)
            self.assertEqual(ended.exception.code, 2)


if __name__ == "__main__":
    unittest.main()
