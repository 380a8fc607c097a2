"""What is asked of tensors, nodes and modules beside the common case."""

import weakref

import torch

# Nodes that hand on their input's elements, as a view or in another type.
_HANDING_ON = frozenset(
    name + "Backward"
    for name in (
        "Alias AsStrided Detach Diagonal Expand Narrow Permute ReshapeAlias Select Slice Split SplitWithSizes Squeeze T "
        "ToCopy Transpose Unbind Unflatten Unfold UnsafeSplit UnsafeView Unsqueeze View ViewAsComplex ViewAsReal"
    ).split()
)

_NAME_BYTES = 200  # of 255: the operation's name comes behind it


def hands_on(node_type) -> bool:
    return node_type.__name__.rstrip("0123456789") in _HANDING_ON


def is_of_parameter(node) -> bool:
    """Whether views and casts alone lie between a leaf that takes a gradient and what the node made."""
    while node is not None:
        if type(node).__name__ == "AccumulateGrad":
            return True
        if not hands_on(type(node)):
            return False
        node = node.next_functions[0][0] if node.next_functions else None
    return False


class Held:
    """A tensor that stays where it is, with the version that it had."""

    __slots__ = ("tensor", "version")

    def __init__(self, tensor, version):
        self.tensor = tensor
        self.version = version


def hold(tensor) -> Held:
    version = None if tensor.is_inference() else tensor._version
    # What an operation made may be saved by that very operation: it must not hold the node that holds it.
    return Held(tensor if tensor.grad_fn is None else tensor.detach(), version)


def take_back(held: Held):
    if held.version is not None and held.tensor._version != held.version:
        raise RuntimeError(changed_text(held.tensor, None, held.tensor._version, held.version))
    return held.tensor


def changed_text(tensor, name, version: int, expected: int) -> str:
    """Begins as PyTorch's own does."""
    what = f"[{tensor.type()} {list(tensor.shape)}]" if tensor is not None else f"'{name}'"
    return (
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"{what} is at version {version}; expected version {expected} instead. torch.autograd.set_detect_anomaly(True) "
        "finds the operation whose gradient could not be computed."
    )


def _clean(name: str) -> str:
    """As Ebb takes names: the end of a long one, and no slash, which parts scopes there."""
    return name.replace("/", ":").encode()[-_NAME_BYTES:].decode(errors="ignore")


def _address(buffer) -> int | None:
    """None where there is no memory: sparse, not made yet, or no buffer."""
    try:
        return None if buffer is None else buffer.data_ptr()
    except (RuntimeError, ValueError):
        return None


class ModuleNames:
    """Names of a model's modules, below a top name if there is one, and where its buffers are."""

    def __init__(self, root: torch.nn.Module, top: str):
        self._root = weakref.ref(root)
        self._top = top
        self._names: dict[int, tuple[weakref.ref, str]] = {}  # by the module's identity, which may become another's
        self._with_buffers: list[weakref.ref] = []
        self._buffers: set[int] = set()
        self._look()

    def of(self, module) -> str:
        known = self._names.get(id(module))
        if known is None or known[0]() is not module:
            # Of a model that was changed, or of none: then it has the name of its class.
            self._names[id(module)] = (weakref.ref(module), _clean(type(module).__name__))
            self._look()
            known = self._names[id(module)]
        return known[1]

    def _look(self) -> None:
        """At the model as it is now."""
        for path, module in self._root().named_modules():
            self._names[id(module)] = (weakref.ref(module), _clean(f"{self._top}.{path}".strip(".")))
        self._with_buffers = [weakref.ref(module) for module in self._root().modules() if module._buffers]

    def look_at_buffers(self) -> None:
        self._buffers = {
            address for there in self._with_buffers if (module := there()) is not None
            for buffer in module._buffers.values() if (address := _address(buffer)) is not None
        }

    def is_in_buffer(self, data: int) -> bool:
        return data in self._buffers
