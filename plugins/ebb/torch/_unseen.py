"""Forward passes whose saved tensors PyTorch hands to nobody, or to somebody else."""

import collections
import threading

import torch


class Unseen:
    """Counts of one process: by hooks that lay inside ours, and in threads that are in no context while another is."""

    def __init__(self):
        self._lock = threading.Lock()
        self._contexts = 0  # open ones, of all threads
        self._threads = 0
        self._under: collections.Counter = collections.Counter()

    def opened(self) -> None:
        with self._lock:
            self._contexts += 1

    def ended(self) -> None:
        with self._lock:
            self._contexts -= 1

    def in_another_thread(self) -> None:
        if self._contexts > 0 and torch.is_grad_enabled():
            self._threads += 1

    def look(self, ours: tuple[type, ...]) -> None:
        """Whether the innermost hooks are ours."""
        innermost = torch._C._autograd._top_saved_tensors_default_hooks(False)
        pack = None if innermost is None else innermost[0]
        if pack is not None and not isinstance(getattr(pack, "__self__", None), ours):
            self._under[getattr(pack, "__qualname__", type(pack).__name__).partition(".<locals>")[0]] += 1

    def report(self) -> str:
        text = "".join(f"passed through: {count} forward passes of modules inside other saved-tensor hooks ({name})\n"
                       for name, count in self._under.items())
        if self._threads:
            text += f"passed through: {self._threads} forward passes of modules in threads that are in no context\n"
        return text

    def forget(self) -> None:
        self._threads = 0
        self._under.clear()
