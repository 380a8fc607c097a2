"""Staging memory from PyTorch's own allocators."""

import torch

_LEGACY_STREAM = 1  # of Ebb, for what PyTorch has as stream 0


class CudaMemory:
    """Of the caching allocator, so that torch.cuda.memory_allocated() and its limits count it."""

    def __init__(self, ordinal: int):
        self._device = torch.device("cuda", ordinal)

    def alloc(self, size_bytes: int, home: int) -> int:
        try:
            return torch.cuda.caching_allocator_alloc(size_bytes, self._device, 0 if home == _LEGACY_STREAM else home)
        except torch.OutOfMemoryError:
            return 0

    def free(self, address: int, home: int) -> None:
        torch.cuda.caching_allocator_delete(address)

    def available(self) -> int:
        """What is free, or the allocator's own limit (set_per_process_memory_fraction) if that leaves less."""
        free_bytes, total_bytes = torch.cuda.mem_get_info(self._device)
        allocated = torch.cuda.memory_allocated(self._device)
        cached = torch.cuda.memory_reserved(self._device) - allocated
        limit_bytes = int(torch.cuda.get_per_process_memory_fraction(self._device) * total_bytes)
        return max(0, min(free_bytes + cached, limit_bytes - allocated))
