"""What contexts with the same settings share: hooks, one runtime per device, steps; and what the hooks ask of Python."""

import collections
import contextlib
import os
import threading
import warnings
import weakref

import torch

from ebb import _library, _torch_hooks
from ebb.torch import _exchange, _graph, _parts, _staging
from ebb.torch._agreement import Agreement
from ebb.torch._settings import Settings

_CPU, _CUDA = 1, 2  # of DLPack
DEFAULT_FLOOR_BYTES = 1 << 20


class Session:
    """Also what the hooks call `other`: the questions that are not asked often."""

    def __init__(self, settings: Settings):
        self._settings = settings
        self._runtimes: dict[tuple[int, int], _library.Runtime] = {}
        self._names: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
        self._model: torch.nn.Module | None = None
        self._of_pass: _graph.ModuleNames | None = None
        self._lock = threading.Lock()
        self._refused: set[str] = set()
        self._allocators: list[_torch_hooks.Allocator] = []
        self._passed_kinds: collections.Counter = collections.Counter()
        self._optimizer_seen = False
        self._closed = False
        self._agreements: dict[tuple[int, int], Agreement] = {}
        self.hooks = _torch_hooks.Hooks(
            tensor_type=torch.Tensor,
            parameter_type=torch.nn.Parameter,
            table=_exchange.table(),
            other=self,
            current_graph_task=torch._C._current_graph_task_id,
            grad_enabled=torch.is_grad_enabled,
            floor_bytes=settings.floor if settings.floor is not None else DEFAULT_FLOOR_BYTES,
        )

    # ------------------------------------------------------------------------------------------------- steps --

    def begin_forward(self, model=None) -> None:
        self.hooks.reset()
        self._model = model
        if self._optimizer_seen:
            return
        for runtime in self._runtimes.values():
            if runtime.statistics()["live_activations"] == 0:
                runtime.step()

    def begin_step(self) -> None:
        """Without the end of one that others would learn from."""
        for runtime in self._runtimes.values():
            runtime.step()

    def end_step(self) -> None:
        self._optimizer_seen = True
        self.hooks.end_step()
        for place, runtime in list(self._runtimes.items()):
            runtime.step()
            self._agreements[place].look(runtime)

    @contextlib.contextmanager
    def recomputing(self, size_bytes: int):
        """Reloads inside are those of something that is computed again."""
        runtimes = list(self._runtimes.values())
        for runtime in runtimes:
            runtime.recompute_begin(size_bytes)
        try:
            yield
        finally:
            for runtime in runtimes:
                runtime.recompute_end()

    # ----------------------------------------------------------------------------------------------- devices --

    def _add_place(self, device: torch.device) -> bool:
        if device.type == "cpu":
            place, options = (_CPU, 0), {"device": "host"}
        elif device.type == "cuda":
            place, options = (_CUDA, device.index), {"device": "cuda", "device_ordinal": device.index}
            options["allocator"] = self._lend(_staging.CudaMemory(device.index))
        else:
            if device.type not in self._refused:
                self._refused.add(device.type)
                warnings.warn(f"ebb: tensors on {device.type} stay where they are: Ebb moves those on cpu and cuda",
                              stacklevel=2)
            return False
        options["host_processes"] = _processes_of_this_host()
        with self._lock:  # several threads may come to a device at once, or one closes
            if self._closed:
                return False
            if place not in self._runtimes:
                runtime = _library.Runtime(**(options | self._settings.options()))
                runtime.step()
                self.hooks.add_place(*place, runtime.address, place[0] == _CPU, self._settings.verify)
                self._runtimes[place] = runtime
                self._agreements[place] = Agreement(f"{self._settings}/{place[0]}")
        return True

    def _lend(self, memory) -> int:
        """The address of an allocator that gives `memory`."""
        allocator = _torch_hooks.Allocator(memory)
        self._allocators.append(allocator)  # as long as a runtime may call it
        return allocator.address

    # ------------------------------------------------------------------------------------ asked by the hooks --

    def pack_elsewhere(self, tensor):
        return self.hooks.pack(tensor) if self._add_place(tensor.device) else _graph.hold(tensor)

    def pack_odd(self, tensor):
        return _graph.hold(tensor)

    def pack_subclass(self, tensor):
        if isinstance(tensor, torch.nn.Parameter) or tensor.is_leaf and tensor.requires_grad:
            return _graph.hold(tensor)
        if tensor.grad_fn is not None and _graph.is_of_parameter(tensor.grad_fn):
            return _graph.hold(tensor)
        tensor = _parts.arrived(tensor)
        if type(tensor) is torch.Tensor:
            return self.hooks.pack(tensor)
        if _parts.can_be_taken_apart(tensor):
            return _parts.Parts(tensor, self.hooks.pack)
        self._passed_kinds[type(tensor).__name__] += 1
        return _graph.hold(tensor)

    def unpack(self, held):
        if isinstance(held, _parts.Parts):
            return held.put_together(self.hooks.unpack)
        return _graph.take_back(held)

    def stays(self, tensor, data: int, size_bytes: int) -> bool:
        """Of a tensor that no operation is known to have made: a parameter, a buffer or a view of one."""
        if tensor.requires_grad or (tensor._is_view() and isinstance(tensor._base, torch.nn.Parameter)):
            return True
        return self._of_pass is not None and self._of_pass.is_in_buffer(data)

    def hands_on(self, node_type) -> bool:
        return _graph.hands_on(node_type)

    def is_of_parameter(self, node) -> bool:
        return _graph.is_of_parameter(node)

    def recompute(self, packed):
        return packed.frame.tensor(packed.index)

    def changed(self, packed, version: int):
        raise RuntimeError(_graph.changed_text(packed.tensor, packed.name, version, packed.version))

    def may_write(self) -> bool:
        """A backward in Python may, or hand it on as a gradient that others are added to; PyTorch's own do neither."""
        node = torch._C._current_autograd_node()
        return node is None or isinstance(node, torch._C._FunctionBase)

    def new_bytes(self, size_bytes: int, device_type: int, ordinal: int):
        device = torch.device("cpu") if device_type == _CPU else torch.device("cuda", ordinal)
        return torch.empty(size_bytes, dtype=torch.uint8, device=device)

    def name_of_module(self, module, depth: int) -> str:
        if depth == 0:
            top = module if self._model is None else self._model
            names = self._names.get(top)
            if names is None:
                names = _graph.ModuleNames(top, type(top).__name__ if self._model is None else "")
                self._names[top] = names
            self._of_pass = names
            names.look_at_buffers()
        return self._of_pass.of(module)

    # ------------------------------------------------------------------------------------------------ reports --

    def statistics(self) -> dict:
        return {_device_name(place): runtime.statistics() for place, runtime in self._runtimes.items()}

    def report(self) -> str:
        held = self.hooks.held_elsewhere()
        parts = [f"{_device_name(place)}\n{runtime.report()}{self._of_place(place, runtime)}"
                 for place, runtime in self._runtimes.items()]
        if held:
            parts.append("copied, not freed (somebody else held them; kept since):\n" + "".join(
                f"  {name}: {count} times, {size_bytes / 2**20:.1f} MiB\n" for name, count, size_bytes in held))
        parts.extend(f"{kind}: {count} passed through, Ebb cannot take them apart\n"
                     for kind, count in self._passed_kinds.items())
        parts.append(f"saved tensors: {self.hooks.moved_count} given to Ebb, {self.hooks.passed_count} passed through\n")
        return "\n".join(parts)

    def _of_place(self, place, runtime) -> str:
        """What the runtime does not know of itself."""
        numbers = runtime.statistics()
        freed_bytes = numbers["given_up_bytes"] - self.hooks.held_bytes(*place)
        text = f"copied to the host: {_mib(numbers['d2h_bytes'])}, of that really freed: {_mib(freed_bytes)}\n"
        return text + self._agreements[place].report()

    def close(self) -> None:
        with self._lock:
            self._closed = True
        runtimes, self._runtimes = self._runtimes, {}
        over = self.hooks.forget_places()
        for runtime in runtimes.values():
            if runtime.address in over:
                runtime.close()
            else:
                _outliving.append(runtime)

    def lose(self) -> None:
        """In a child process: what its parent has is not here."""
        self.hooks.lose_places()
        self._runtimes = {}


_outliving: list[_library.Runtime] = []  # closed while PyTorch had memory of theirs: it may have it still


def _processes_of_this_host() -> int:
    """As torchrun says it."""
    said = os.environ.get("LOCAL_WORLD_SIZE", "")
    return int(said) if said.isdecimal() and int(said) > 0 else 1


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.1f} MiB"


def _device_name(place: tuple[int, int]) -> str:
    return "cpu" if place[0] == _CPU else f"cuda:{place[1]}"
