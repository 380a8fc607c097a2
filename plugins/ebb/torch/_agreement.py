"""One plan for all processes of a job: the one made under the smallest budget."""

import json

import torch.distributed as dist

from ebb import _library

_STEPS_BETWEEN_LOOKS = 4


class Agreement:
    """Over the store of torch.distributed, so that nobody ever waits for anybody: each process says what it has planned
    once it has a plan; the first one takes that of the smallest budget when all have said theirs, and each follows it
    from when it has seen it. Plans change no bytes, so processes need not change to it in the same step."""

    def __init__(self, name: str):
        self._name = name
        self._store = None
        self._steps = 0
        self._plan: str | None = None
        self._is_posted = False
        self._is_over = False
        self._outcome = ""

    def look(self, runtime: _library.Runtime) -> None:
        """At the end of each step."""
        self._steps += 1
        if self._is_over or self._steps % _STEPS_BETWEEN_LOOKS != 0 or not _several_processes():
            return
        try:
            self._talk(runtime)
        except (RuntimeError, AttributeError) as why:  # no store any more, or none that is known: training goes on
            self._is_over = True
            self._outcome = f"no plan was agreed on between processes: {why}\n"

    def _talk(self, runtime: _library.Runtime) -> None:
        if not self._is_posted:
            last, self._plan = self._plan, runtime.plan()
            if self._plan is None or self._plan != last:
                return  # plans are compared with each other at first, each for some steps
            self._store = dist.PrefixStore(f"ebb/{self._name}", dist.distributed_c10d._get_default_store())
            budget_bytes = runtime.statistics()["device_budget_bytes"]
            self._store.set(f"{dist.get_rank()}", json.dumps([budget_bytes, dist.get_rank(), self._plan]))
            self._is_posted = True
        if dist.get_rank() == 0:
            self._choose()
        if self._store.check(["chosen"]):
            self._follow(runtime, json.loads(self._store.get("chosen")))

    def _choose(self) -> None:
        everybody = [f"{rank}" for rank in range(dist.get_world_size())]
        if self._store.check(everybody):
            said = [json.loads(self._store.get(rank)) for rank in everybody]
            self._store.set("chosen", json.dumps(min(said, key=lambda one: one[:2])))

    def _follow(self, runtime: _library.Runtime, chosen) -> None:
        self._is_over = True
        budget_bytes, rank, plan = chosen
        try:
            runtime.follow(plan)
        except _library.EbbError as why:
            self._outcome = f"the plan of process {rank} is not for what this one computes, which follows its own ({why})\n"
        else:
            self._outcome = (f"all processes follow the plan of process {rank}, whose budget of {budget_bytes} bytes is the "
                             "smallest\n")

    def report(self) -> str:
        return self._outcome


def _several_processes() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
