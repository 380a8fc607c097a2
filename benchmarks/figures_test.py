"""Tests of figures.py on reports like Google Benchmark's, with known medians."""

import contextlib
import io
import json
import os
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import figures  # noqa: E402


def report(**times):
    """A report with three repetitions of each: name -> (times in ns, extra fields)."""
    entries = []
    for name, (values, extra) in times.items():
        for value in values:
            entries.append({"name": name, "run_name": name, "run_type": "iteration", "cpu_time": value, "time_unit": "ns", **extra})
        entries.append({"name": name + "_median", "run_name": name, "run_type": "aggregate", "cpu_time": 1e9, "time_unit": "ns"})
    return {"context": {}, "benchmarks": entries}


def by_name(made):
    return {f["name"]: f for f in made}


class FigureTest(unittest.TestCase):
    def test_targets_hold_and_fail_at_their_limits(self):
        self.assertTrue(figures.figure("a", 1.5, "ns", "b", 1.0, at_most=1.5)["met"])
        self.assertFalse(figures.figure("a", 1.51, "ns", "b", 1.0, at_most=1.5)["met"])
        self.assertFalse(figures.figure("a", 1.0, "ns", "b", 1.0, below=1.0)["met"])
        self.assertTrue(figures.figure("a", 0.99, "ns", "b", 1.0, below=1.0)["met"])
        self.assertTrue(figures.figure("a", 0.9, "GB/s", "b", 1.0, at_least=0.9)["met"])
        self.assertFalse(figures.figure("a", 0.89, "GB/s", "b", 1.0, at_least=0.9)["met"])

    def test_without_a_target_met_is_null(self):
        made = figures.figure("a", 1.0, "ns", "b", 2.0)
        self.assertEqual(made["ratio"], 0.5)
        self.assertIsNone(made["target"])
        self.assertIsNone(made["met"])
        self.assertIsNone(figures.figure("a", 1.0, "ns", "b", 0.0)["ratio"])


class MeasurementsTest(unittest.TestCase):
    def test_medians_leave_aggregates_out_and_suffixes_off(self):
        m = figures.Measurements(report(**{"lane_copy/ours/real_time": ([3.0, 1.0, 2.0], {})}))
        self.assertEqual(m.names(), ["lane_copy/ours"])
        self.assertEqual(m.nanoseconds("lane_copy/ours"), 2.0)

    def test_units_and_items(self):
        m = figures.Measurements(report(a=([2.0], {"time_unit": "us"}), b=([5.0], {"items_per_second": 1e6})))
        self.assertEqual(m.nanoseconds("a"), 2000.0)
        self.assertEqual(m.nanoseconds("b"), 1000.0)

    def test_a_failed_benchmark_is_a_failure(self):
        with self.assertRaisesRegex(figures.Failure, "a: no memory"):
            figures.Measurements(report(a=([1.0], {"error_occurred": True, "error_message": "no memory"})))

    def test_what_is_missing_is_named(self):
        m = figures.Measurements(report(a=([1.0], {})))
        with self.assertRaisesRegex(figures.Failure, "b was not run"):
            m.nanoseconds("b")
        with self.assertRaisesRegex(figures.Failure, "a does not give waste"):
            m.median("a", "waste")


class BenchmarksTest(unittest.TestCase):
    def test_sim_ops(self):
        m = figures.Measurements(report(**{"sim_ops/ours": ([3e6], {"items_per_second": 2.5e6})}))
        made = by_name(figures.sim_ops_figures(m))
        self.assertAlmostEqual(made["sim_ops.per_second"]["value"], 2.5)
        self.assertTrue(made["sim_ops.per_second"]["met"])
        m = figures.Measurements(report(**{"sim_ops/ours": ([3e6], {"items_per_second": 0.99e6})}))
        self.assertFalse(figures.sim_ops_figures(m)[0]["met"])

    def test_plan(self):
        def measured(ms_504):
            return figures.Measurements(report(**{
                "plan/one_pool/63": ([20e6], {}),
                "plan/one_pool/126": ([40e6], {"gap": 0.002}),
                "plan/one_pool/252": ([80e6], {}),
                "plan/one_pool/504": ([ms_504 * 1e6], {}),
                "plan/staging/126": ([51e6], {"gap": 0.01}),
                "plan/evaluate/126": ([60e3], {}),
            }))
        made = by_name(figures.plan_figures(measured(185.0)))
        self.assertTrue(made["plan_126x20"]["met"])
        self.assertAlmostEqual(made["plan_126x20"]["value"], 40.0)
        self.assertFalse(made["plan_126x20.staging"]["met"])
        self.assertTrue(made["plan_252x20"]["met"])
        self.assertTrue(made["plan_504x20"]["met"])
        self.assertAlmostEqual(made["plan_126x20.gap.staging"]["value"], 1.0)
        self.assertFalse(by_name(figures.plan_figures(measured(190.0)))["plan_504x20"]["met"])

    def test_hot_path(self):
        m = figures.Measurements(report(**{
            "hot_path/ours/100": ([100.0, 90.0, 110.0], {}),
            "hot_path/ours/100000": ([160.0, 160.0, 160.0], {}),
            "hot_path/plain/100": ([200.0, 200.0, 200.0], {}),
            "hot_path/plain/100000": ([310.0, 310.0, 310.0], {}),
        }))
        made = by_name(figures.hot_path_figures(m))
        self.assertAlmostEqual(made["hot_path.live_100000"]["ratio"], 1.6)
        self.assertFalse(made["hot_path.live_100000"]["met"])
        self.assertIsNone(made["hot_path.plain_100"]["met"])
        self.assertAlmostEqual(made["hot_path.plain_100"]["ratio"], 0.5)
        self.assertFalse(made["hot_path.plain_100000"]["met"])

    def test_arena_has_an_entry_for_each_baseline_and_its_waste(self):
        m = figures.Measurements(report(**{
            "arena_lifo/ours": ([10.0] * 3, {"waste": 0.05, "waste_power_of_two": 0.4}),
            "arena_lifo/pmr": ([20.0] * 3, {"waste": 0.2}),
            "arena_lifo/malloc": ([8.0] * 3, {"waste": 0.1}),
        }))
        made = by_name(figures.arena_figures(m, "arena_lifo"))
        self.assertTrue(made["arena_lifo.pmr"]["met"])
        self.assertFalse(made["arena_lifo.malloc"]["met"])
        self.assertEqual(made["arena_lifo.waste.power_of_two"]["baseline_value"], 0.4)
        self.assertEqual(made["arena_lifo.waste.pmr"]["value"], 0.05)
        self.assertIsNone(made["arena_lifo.waste.pmr"]["target"])

    def test_lane_copy_keeps_cases_apart(self):
        m = figures.Measurements(report(**{
            "lane_copy/ours/1": ([1.0], {"bytes_per_second": 9e9}),
            "lane_copy/memcpy/1": ([1.0], {"bytes_per_second": 10e9}),
            "lane_copy/ours/2": ([1.0], {"bytes_per_second": 10e9}),
            "lane_copy/memcpy/2": ([1.0], {"bytes_per_second": 20e9}),
        }))
        made = by_name(figures.lane_copy_figures(m))
        self.assertTrue(made["lane_copy.memcpy.1"]["met"])
        self.assertFalse(made["lane_copy.memcpy.2"]["met"])
        self.assertEqual(made["lane_copy.memcpy.2"]["value"], 10.0)

    def test_a_benchmark_without_a_baseline_is_a_failure(self):
        m = figures.Measurements(report(**{"lane_copy/ours": ([1.0], {"bytes_per_second": 1e9})}))
        with self.assertRaisesRegex(figures.Failure, "no baseline"):
            figures.lane_copy_figures(m)
        with self.assertRaisesRegex(figures.Failure, "arena_moe/ours was not run"):
            figures.arena_figures(m, "arena_moe")

    def test_train_modes_compares_automatic_with_the_best_that_fits(self):
        made = by_name(figures.train_figures({
            "keep": [None, None, None],
            "recompute": [130.0, 131.0, 129.0],
            "offload-sync": [150.0, 149.0, 151.0],
            "offload-lhs": [101.0, 100.0, 102.0],
            "offload-pipelined": [154.0, 153.0, 155.0],
            "offload-auto": [103.0, 104.0, 103.0],
        }))
        self.assertFalse(made["train_modes.pipelined"]["met"])
        self.assertEqual(made["train_modes.auto"]["baseline_value"], 101.0)
        self.assertIn("offload-lhs", made["train_modes.auto"]["baseline"])
        self.assertTrue(made["train_modes.auto"]["met"])
        self.assertEqual(made["train_modes.auto.recompute"]["baseline_value"], 130.0)
        self.assertNotIn("train_modes.auto.keep", made)

    def test_train_modes_that_do_not_fit_are_a_failure(self):
        with self.assertRaisesRegex(figures.Failure, "offload-sync"):
            figures.train_figures({"offload-sync": [None], "offload-pipelined": [1.0], "offload-auto": [1.0]})

    def test_hook_cost_takes_medians_over_processes_and_has_both_targets(self):
        made = by_name(figures.hook_cost_figures(
            [{"ns_per_saved_tensor": {"none": 90.0, "empty": 100.0, "passed": passed, "moved": 151.0}} for passed in (120.0, 110.0, 300.0)]))
        self.assertAlmostEqual(made["hook_cost.passed"]["ratio"], 1.2)
        self.assertTrue(made["hook_cost.passed"]["met"])
        self.assertAlmostEqual(made["hook_cost.moved"]["ratio"], 1.51)
        self.assertFalse(made["hook_cost.moved"]["met"])

    def step_report(self, ms, status="ok", same=True):
        rows = [{"mode": mode, "status": "ok", "step_ms": value} for mode, value in ms.items()]
        rows[-1] |= {"status": status, "why": "it broke"}
        return {"rows": rows, "losses_are_the_same": same}

    def test_torch_step_reports_without_a_target(self):
        ms = {"keep": 100.0, "checkpoint": 130.0, "clone": 110.0, "ebb": 105.0, "ebb-offload": 108.0}
        made = by_name(figures.torch_step_figures([self.step_report(ms), self.step_report({**ms, "ebb": 111.0}), self.step_report(ms)]))
        self.assertAlmostEqual(made["torch_step.ebb.keep"]["ratio"], 1.05)
        self.assertAlmostEqual(made["torch_step.ebb-offload.clone"]["ratio"], 108 / 110)
        self.assertTrue(all(each["target"] is None for each in made.values()))
        self.assertEqual(len(made), 5)
        with self.assertRaisesRegex(figures.Failure, "ebb-offload failed: it broke"):
            figures.torch_step_figures([self.step_report(ms, status="failed")])
        with self.assertRaisesRegex(figures.Failure, "the losses differ"):
            figures.torch_step_figures([self.step_report(ms, same=False)])


    def test_ffi_cost_has_its_target(self):
        (made,) = figures.ffi_cost_figures([{"ns_per_pair": {"nothing": 200.0, "moved": moved}} for moved in (500.0, 620.0, 900.0)])
        self.assertAlmostEqual(made["ratio"], 3.1)
        self.assertFalse(made["met"])

    def test_jax_step_reports_time_and_memory_without_a_target(self):
        rows = [{"mode": mode, "step_ms": 100.0 + i, "temp_mib": 50.0 - i} for i, mode in enumerate(figures.JAX_STEP_MODES)]
        made = by_name(figures.jax_step_figures([{"rows": rows, "losses_are_the_same": True}] * 3))
        self.assertAlmostEqual(made["jax_step.ebb-offload.keep.step_ms"]["ratio"], 103 / 100)
        self.assertAlmostEqual(made["jax_step.ebb-names.save-names.temp_mib"]["ratio"], 46 / 48)
        self.assertTrue(all(each["target"] is None for each in made.values()))
        self.assertEqual(len(made), 8)
        with self.assertRaisesRegex(figures.Failure, "the losses differ"):
            figures.jax_step_figures([{"rows": rows, "losses_are_the_same": False}])


class ProgramTest(unittest.TestCase):
    """The whole program with scripts in place of the benchmarks."""

    def run_main(self, script, *arguments):
        with tempfile.TemporaryDirectory(prefix="with space ") as folder:
            bin_dir = Path(folder) / "bin"
            bin_dir.mkdir()
            for name in ("lane_copy_bench", "policy_bench", "train_transformer"):
                program = bin_dir / name
                program.write_text(f"#!{sys.executable}\n{script}")
                os.chmod(program, 0o755)
            out = Path(folder) / "out.json"
            printed, said = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said):
                status = figures.main(["--bin-dir", str(bin_dir), "--out", str(out), *arguments])
            return status, printed.getvalue(), said.getvalue(), json.loads(out.read_text()) if out.exists() else None

    def test_writes_table_and_json(self):
        made = report(**{
            "lane_copy/ours/real_time": ([1.0] * 3, {"bytes_per_second": 9.5e9}),
            "lane_copy/memcpy/real_time": ([1.0] * 3, {"bytes_per_second": 1e10}),
        })
        script = (
            "import sys\n"
            "out = [a.split('=', 1)[1] for a in sys.argv if a.startswith('--benchmark_out=')][0]\n"
            f"open(out, 'w').write({json.dumps(json.dumps(made))})\n"
        )
        status, printed, _, written = self.run_main(script, "--quick", "lane_copy")
        self.assertEqual(status, 0)
        self.assertRegex(printed, r"lane_copy\.memcpy +9\.5 +GB/s +memcpy +10 +0\.950 +>= 0\.9 +yes")
        self.assertEqual(set(written), {"context", "figures"})
        self.assertEqual(set(written["figures"][0]), {"name", "value", "unit", "baseline", "baseline_value", "ratio", "target", "met"})
        self.assertTrue(written["context"]["quick"])

    def test_train_modes_runs_each_mode_in_each_round(self):
        script = (
            "import json, sys\n"
            "mode = sys.argv[sys.argv.index('--mode') + 1]\n"
            "ok = mode != 'keep'\n"
            "print(json.dumps({'context': {'layers': 8}, 'modes': [{'mode': mode, 'status': 'ok' if ok else 'out_of_memory',"
            " 'step_ms': 100.0 if ok else None}]}))\n"
        )
        status, _, said, written = self.run_main(script, "--quick", "train_modes")
        self.assertEqual(status, 0)
        self.assertEqual(said.count("offload-auto"), 3)
        self.assertTrue(by_name(written["figures"])["train_modes.auto"]["met"])
        self.assertEqual(written["context"]["benchmarks"]["train_modes"], {"layers": 8})

    def test_policy_prints_the_programs_table_and_keeps_its_report(self):
        made = {"tie": 0.001, "workloads": [
            {"name": "dense 8B, x4", "step_ms": 100.05, "automatic_ms": 100.05, "best": "group", "best_ms": 100.0},
            {"name": "MoE", "step_ms": 100.2, "automatic_ms": 100.0, "best": "keep", "best_ms": 100.0}]}
        script = (
            "import sys\n"
            f"open(sys.argv[sys.argv.index('--out') + 1], 'w').write({json.dumps(json.dumps(made))})\n"
            "print('the table', 'quick' if '--quick' in sys.argv else 'full')\n"
        )
        status, printed, _, written = self.run_main(script, "--quick", "policy")
        self.assertEqual(status, 0)
        self.assertIn("the table quick", printed)
        figures_by_name = by_name(written["figures"])
        self.assertTrue(figures_by_name["policy.dense_8B_x4"]["met"])
        self.assertFalse(figures_by_name["policy.MoE"]["met"])
        self.assertTrue(figures_by_name["policy.MoE.automatic"]["met"])
        self.assertEqual(written["context"]["benchmarks"]["policy"], made)

    def test_policy_without_a_plan_or_a_rival_is_a_failure(self):
        workload = {"name": "MoE", "step_ms": None, "automatic_ms": 1.0, "best": "group", "best_ms": 1.0}
        with self.assertRaisesRegex(figures.Failure, "no plan that fits for MoE"):
            figures.policy_figures({"tie": 0.001, "workloads": [workload]})
        with self.assertRaisesRegex(figures.Failure, "no baseline fits MoE"):
            figures.policy_figures({"tie": 0.001, "workloads": [{**workload, "step_ms": 1.0, "best": None}]})

    def python(self, script):
        """What runs the scripts of a framework."""
        folder = tempfile.TemporaryDirectory(prefix="with space ")
        self.addCleanup(folder.cleanup)
        program = Path(folder.name) / "python"
        program.write_text(f"#!{sys.executable}\n{script}")
        os.chmod(program, 0o755)
        return str(program)

    def test_scripts_run_with_the_frameworks_python(self):
        made = {"torch": "2.15.0", "ns_per_saved_tensor": {"none": 90.0, "empty": 100.0, "passed": 115.0, "moved": 140.0}}
        python = self.python("import json, sys\nassert sys.argv[1].endswith('/torch/hook_cost.py') and '--json' in sys.argv\n"
                             f"print({json.dumps(json.dumps(made))})\n")
        status, printed, _, written = self.run_main("", "--quick", "--python", f"torch={python}", "hook_cost")
        self.assertEqual(status, 0)
        self.assertRegex(printed, r"hook_cost\.passed +115 +ns per saved tensor +empty Python hooks +100 +1\.150 +<= 1\.2 +yes")
        self.assertEqual(written["context"]["benchmarks"]["hook_cost"], {"runs": [made]})

    def test_each_round_of_torch_step_starts_at_another_mode(self):
        python = self.python("import json, sys\nmodes = sys.argv[sys.argv.index('--modes') + 1].split(',')\n"
                             "rows = [{'mode': mode, 'status': 'ok', 'step_ms': 1.0 + i} for i, mode in enumerate(modes)]\n"
                             "print(json.dumps({'losses_are_the_same': True, 'rows': rows}))\n")
        status, _, _, written = self.run_main("", "--python", f"torch={python}", "torch_step")
        self.assertEqual(status, 0)
        runs = written["context"]["benchmarks"]["torch_step"]["runs"]
        self.assertEqual(sorted(run["rows"][0]["mode"] for run in runs), sorted(figures.STEP_MODES))
        self.assertEqual(written["figures"][0]["value"], 3.0)  # the median place in line

    def test_a_script_without_its_python_is_a_failure(self):
        status, _, said, _ = self.run_main("", "--quick", "hook_cost")
        self.assertEqual(status, 1)
        self.assertIn("hook_cost takes --python torch=PATH", said)
        status, _, said, _ = self.run_main("", "--quick", "--python", f"torch={self.python('import sys; sys.exit(4)')}", "hook_cost")
        self.assertEqual(status, 1)
        self.assertIn("torch/hook_cost.py ended with status 4", said)

    def test_a_program_that_fails_is_a_failure_and_writes_nothing(self):
        status, printed, said, written = self.run_main("import sys\nprint('no room', file=sys.stderr)\nsys.exit(3)\n", "--quick", "lane_copy")
        self.assertEqual(status, 1)
        self.assertIn("no room", said)
        self.assertIn("lane_copy_bench ended with status 3", said)
        self.assertEqual(printed, "")
        self.assertIsNone(written)

    def test_an_unknown_name_is_wrong_usage(self):
        with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit) as raised:
            figures.main(["--bin-dir", ".", "no_such"])
        self.assertEqual(raised.exception.code, 2)


if __name__ == "__main__":
    unittest.main()
