"""Plans of long chains against a linear program that no plan can beat.

usage: lp_bound.py LP_CHAINS [CHAINS_OF_EACH_KIND]

LP_CHAINS is the program that draws the chains and plans them. Fails when a plan is faster than the program's bound, or
the mean of a kind is more than 0.1 % above it.

Why it is a bound: every plan, as the evaluator runs it, gives a solution of the program with the same time.
  - Each layer is kept, offloaded or recomputed by shares that add up to one; a plan has shares of 0 and 1.
  - out[t] is what the D2H link has copied by t. It grows by no more than the link's rate, and is no more than what was
    offloaded and computed by t. A plan gives a tensor up only when all of it was copied, so that what has left the
    device by t is at most out[t].
  - Before a layer's forward, what was computed before and has not left, and its own output, fit into the device.
  - missing[t] is what is offloaded, still needed, and not on the device at t. It shrinks by no more than the link's rate
    (a copy on its way takes its whole slot in a plan, and only what has arrived here), and before a layer's backward all
    of that layer is there. Where a layer is released, it and what is there of the earlier ones fit into the device.
  - Time passes by work, recompute and waits, and the step is their sum.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

CHAINS_OF_EACH_KIND = 25
LARGEST_MEAN_GAP = 0.001
ROUNDING = 1e-7

try:
    import highspy
except ImportError:
    venv_python = Path(__file__).resolve().parents[2] / "build" / "venv" / "bin" / "python3"
    if venv_python.exists() and Path(sys.prefix) != venv_python.parents[1]:
        os.execv(venv_python, [str(venv_python), *sys.argv])
    sys.exit("lp_bound.py: the package highspy is missing; run: bash cmake/setup.sh python")


class Program:
    """A linear program, minimised: columns with a lower bound of 0, rows of at most a limit."""

    def __init__(self):
        self.highs = highspy.Highs()
        for option in ("output_flag", "log_to_console"):
            self.highs.setOptionValue(option, False)
        self.columns = 0

    def column(self, cost=0.0, upper=highspy.kHighsInf):
        self.highs.addCol(cost, 0.0, upper, 0, [], [])
        self.columns += 1
        return self.columns - 1

    def at_most(self, terms, limit, lower=-highspy.kHighsInf):
        indices = list(terms)
        self.highs.addRow(lower, limit, len(indices), indices, [terms[i] for i in indices])

    def solve(self):
        self.highs.run()
        status = self.highs.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            sys.exit(f"lp_bound.py: HiGHS ended with {self.highs.modelStatusToString(status)}")
        return self.highs.getObjectiveValue()


def bound(chain):
    layers = chain["layers"]
    # Sizes as shares of the device, so that the numbers of the program are of one order.
    device = float(chain["device_bytes"])
    size = [layer["bytes"] / device for layer in layers]
    d2h = chain["d2h_per_byte"] * device
    h2d = chain["h2d_per_byte"] * device
    count = len(layers)

    p = Program()
    kept = [p.column(upper=1.0) for _ in layers]
    offloaded = [p.column(upper=1.0) for _ in layers]
    recomputed = [p.column(cost=layer["recompute"], upper=1.0) for layer in layers]
    for i in range(count):
        p.at_most({kept[i]: 1.0, offloaded[i]: 1.0, recomputed[i]: 1.0}, 1.0, lower=1.0)

    # Forward: wait, then work, for each layer. `out` at the begin and at the end of its work.
    before = None
    for i in range(count):
        wait = p.column(cost=1.0)
        begin = p.column()
        end = p.column()
        if before is None:
            p.at_most({begin: 1.0}, 0.0)
        else:
            p.at_most({begin: 1.0, before: -1.0, wait: -1.0 / d2h}, 0.0)
        p.at_most({end: 1.0, begin: -1.0}, layers[i]["forward"] / d2h)
        if i > 0:
            computed = {offloaded[j]: -size[j] for j in range(i)}
            p.at_most({begin: 1.0, **computed}, 0.0)
            p.at_most({end: 1.0, **computed}, 0.0)
        held = {recomputed[j]: -size[j] for j in range(i)}
        p.at_most({begin: -1.0, **held}, 1.0 - sum(size[: i + 1]))
        before = end

    # Backward: wait and recompute, then work, then release. `missing` of the earlier layers at begin and end of it.
    before = None
    for i in reversed(range(count)):
        wait = p.column(cost=1.0)
        begin = p.column()
        end = p.column()
        if before is not None:
            p.at_most({before: 1.0, begin: -1.0, wait: -1.0 / h2d, recomputed[i]: -layers[i]["recompute"] / h2d}, 0.0)
        p.at_most({begin: 1.0, end: -1.0}, layers[i]["backward"] / h2d)
        needed = {offloaded[j]: -size[j] for j in range(i)}
        p.at_most({begin: 1.0, **needed}, 0.0)
        p.at_most({end: 1.0, **needed}, 0.0)
        held = {recomputed[j]: -size[j] for j in range(i)}
        p.at_most({end: -1.0, **held}, 1.0 - sum(size[: i + 1]))
        before = end
    return p.solve() + sum(layer["forward"] + layer["backward"] for layer in layers)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: lp_bound.py LP_CHAINS [CHAINS_OF_EACH_KIND]")
    each = sys.argv[2] if len(sys.argv) == 3 else str(CHAINS_OF_EACH_KIND)
    chains = json.loads(subprocess.run([sys.argv[1], each], check=True, capture_output=True, text=True).stdout)
    gaps = {}
    for number, chain in enumerate(chains):
        if not chain["feasible"]:
            sys.exit(f"lp_bound.py: no plan for chain {number} ({chain['kind']})")
        least = bound(chain)
        if chain["planned"] < least * (1 - ROUNDING) or chain["bound"] > chain["planned"] * (1 + ROUNDING):
            sys.exit(f"lp_bound.py: chain {number} ({chain['kind']}): planned {chain['planned']}, "
                     f"the linear program's bound is {least}, the planner's {chain['bound']}")
        gaps.setdefault(chain["kind"], []).append(chain["planned"] / least - 1)
    failed = False
    for kind, of_kind in gaps.items():
        mean = sum(of_kind) / len(of_kind)
        failed |= mean > LARGEST_MEAN_GAP
        print(f"{kind}: {len(of_kind)} chains, mean {mean:.5%} above the linear program, largest {max(of_kind):.5%}")
    if failed:
        sys.exit(f"lp_bound.py: a mean is above {LARGEST_MEAN_GAP:.1%}")


if __name__ == "__main__":
    main()
