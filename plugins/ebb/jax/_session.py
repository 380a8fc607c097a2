"""Reports, counters and steps, over all devices."""

from ebb.jax import _library


def step() -> None:
    """Ends a step: after the last run of one. Without it a step begins with a run that offloads when nothing else is live."""
    _library.mark_steps()
    for runtime in _library.runtimes().values():
        runtime.step()


def statistics() -> dict:
    """Counters by device: names and units as in ebb_statistics (ebb/ebb.h)."""
    return {device: runtime.statistics() for device, runtime in _library.runtimes().items()}


def report() -> str:
    """What was moved, by name, and how much of it was hidden."""
    parts = [f"{device}\n{runtime.report()}" for device, runtime in _library.runtimes().items()]
    return "\n".join(parts)


def release() -> int:
    """Ends what was offloaded and not reloaded for the last time; how many wrapped calls that was. Not while programs run."""
    return _library.release()


def close() -> None:
    """Ends everything; the next run that offloads begins anew. Not while programs run."""
    _library.close()
