"""Reports, counters and steps, over all devices."""

import json

import jax

from ebb import _library as _core
from ebb.jax import _library, _offload, _plan

_before: dict[str, tuple[int, int]] = {}  # times by function that a plan was made from


def step() -> None:
    """Ends a step: after the last run of one, and after it was waited for (jax.block_until_ready).

    Without it a step begins with a run that offloads when nothing else is live.
    """
    _library.mark_steps()
    with _library.using() as runtimes:
        for runtime in runtimes.values():
            runtime.step()


def statistics() -> dict:
    """Counters by device: names and units as in ebb_statistics (ebb/ebb.h).

    Of what has run by now: JAX returns before a program has run, so wait for its results (jax.block_until_ready) first.
    """
    with _library.using() as runtimes:
        return {device: runtime.statistics() for device, runtime in runtimes.items()}


def report() -> str:
    """What was moved, by name, and how much of it was hidden; of what has run by now, as for statistics()."""
    with _library.using() as runtimes:
        parts = [f"{device}\n{runtime.report()}" for device, runtime in runtimes.items()]
    return "\n".join([*parts, _plan.report()])


def replan() -> str:
    """A plan by what was measured since the functions were traced, for what automatic mode decides; what changes, in
    words.

    Empty: the plan stays. Otherwise each program is traced and compiled once more when it is called next. Every process
    calls it at the same point; the first one's measurements count for all. They are of what has run by now, as for
    statistics().
    """
    measured: dict[str, tuple[int, int]] = {}
    with _library.using() as runtimes:
        texts = [runtime.report(_core.REPORT_JSON) for runtime in runtimes.values()]
    for text in texts:
        for one in json.loads(text)["names"]:
            scope = one["name"].split("/")[0]
            hidden, exposed = measured.get(scope, (0, 0))
            measured[scope] = hidden + one["hidden_ns"], exposed + one["exposed_ns"]
    if jax.process_count() > 1:
        measured = _of_first_process(measured)
    since = {scope: (hidden - _before.get(scope, (0, 0))[0], exposed - _before.get(scope, (0, 0))[1])
             for scope, (hidden, exposed) in measured.items()}
    text = _plan.replan(since)
    if text:
        _before.update(measured)
    return text


def _of_first_process(measured: dict) -> dict:
    import numpy as np
    from jax.experimental import multihost_utils

    text = json.dumps(measured).encode()
    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(text))))
    sent = np.frombuffer(text.ljust(size)[:size], np.uint8)
    return {scope: tuple(times) for scope, times in
            json.loads(bytes(np.asarray(multihost_utils.broadcast_one_to_all(sent)))).items()}


def release() -> int:
    """Ends what was offloaded and not reloaded for the last time; how many wrapped calls that was.

    Not while programs run.
    """
    return _library.release()


def close() -> None:
    """Ends everything; the next run that offloads begins anew. Not while programs run."""
    _library.close()
    _plan.reset()
    _offload.forget_warnings()
    _before.clear()
