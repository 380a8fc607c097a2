"""libebb_jax, which lies beside libebb: its handlers, registered with XLA, and what is asked of it."""

import atexit
import contextlib
import ctypes
import os
import threading

import jax

from ebb import _library
from ebb.jax import _plan

_lib = ctypes.CDLL(str(_library.FILE.with_name("libebb_jax.so")))
_EACH = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p)
_lib.ebb_jax_configure.argtypes = [ctypes.POINTER(_library.Options), ctypes.c_uint64]
_lib.ebb_jax_configure.restype = None
_lib.ebb_jax_each_runtime.argtypes = [_EACH]
_lib.ebb_jax_each_runtime.restype = None
for _name in ("ebb_jax_live_count", "ebb_jax_live_bytes", "ebb_jax_release"):
    getattr(_lib, _name).argtypes = []
    getattr(_lib, _name).restype = ctypes.c_uint64
_lib.ebb_jax_close.restype = None
_lib.ebb_jax_end.argtypes = [ctypes.c_uint64]
_lib.ebb_jax_end.restype = None
_lib.ebb_jax_mark_steps.restype = None

for _platform in ("cpu", "cuda"):
    for _call in ("offload", "reload"):
        jax.ffi.register_ffi_target(
            f"ebb_{_call}", jax.ffi.pycapsule(getattr(_lib, f"ebb_jax_{_call}_{_platform}")),
            platform=_platform.replace("cuda", "CUDA")
        )

_kept: list = []  # options that the library points to
_lock = threading.RLock()  # ctypes lets other threads run during a call
_process = os.getpid()
# But for what the plugin sees to itself, and for addresses.
_FIELDS = {name for name, _ in _library.Options._fields_} - {
    "struct_size", "device_ordinal", "staging_memory", "allocator", "log", "log_context"}


def configure(*, host_memory: int | None = None, verify: bool = False, survivor_memory: int = 4 << 30,
              machine: str | None = None, **options) -> None:
    """For all that moves from now on; before the first program that offloads has run, or after close().

    host_memory: cap of the pinned memory of each device, in bytes.
    verify: checksums of what comes back.
    survivor_memory: what programs leave behind and others may reload, in bytes.
    machine: whose rates automatic mode plans by, a file of profiles/machines; without it that of the first device, and
        where there is none, all values above the floor move.
    Further ones are fields of ebb_runtime_options (ebb/ebb.h).
    """
    with using() as there:
        if there:
            raise RuntimeError("ebb.jax.configure comes before the first program that offloads has run, "
                               "or after ebb.jax.close()")
        _configure(host_memory, verify, survivor_memory, machine, options)


def _configure(host_memory, verify, survivor_memory, machine, options) -> None:
    for name in options:
        if name not in _FIELDS:
            raise TypeError(f"ebb.jax.configure: ebb_runtime_options (ebb/ebb.h) has no field {name!r} for it")
    for name, value in {"host_memory": host_memory or 0, "survivor_memory": survivor_memory}.items():
        if not isinstance(value, int):
            raise TypeError(f"ebb.jax.configure: {name} is {value!r}: it is a number of bytes, an int")
        if not 0 <= value < 1 << 63:
            raise ValueError(f"ebb.jax.configure: {name} is {value}: it is a number of bytes, less than 2**63")
    fields = {"policy": "offload", "min_offload_bytes": 1, "verify": _library.ON if verify else _library.OFF}
    fields |= {} if host_memory is None else {"host_bytes": host_memory}
    fields |= options
    given = _library.options_of(fields)
    # What the core says to them is told here, and not by the first program.
    _library.Runtime(**{name: value for name, value in fields.items() if name != "record"} | {"device": "null"}).close()
    _plan.set_machine(machine)
    _kept.append(given)
    _lib.ebb_jax_configure(ctypes.byref(given), survivor_memory)


@contextlib.contextmanager
def using():
    """Runtimes by device, of those that moved something. They are there until it is left: close() waits for that."""
    found = {}
    if os.getpid() != _process:  # in a child that was forked there are none, and nobody who gives the lock back
        yield found
        return
    with _lock:
        _lib.ebb_jax_each_runtime(
            _EACH(lambda name, address: found.setdefault(name.decode(), _library.Runtime.at(address)) and None)
        )
        yield found


def live() -> tuple[int, int]:
    """Wrapped calls whose arrays are in Ebb's memory, and the bytes of them."""
    return _lib.ebb_jax_live_count(), _lib.ebb_jax_live_bytes()


def mark_steps() -> None:
    """Runs begin no steps any more, until close()."""
    _lib.ebb_jax_mark_steps()


def end(handle: int) -> None:
    """What stays otherwise until it is reloaded."""
    _lib.ebb_jax_end(handle)


def release() -> int:
    return _lib.ebb_jax_release() if os.getpid() == _process else 0


def close() -> None:
    """Nothing in a child that was forked: it has none of the threads that would be waited for."""
    if os.getpid() != _process:
        return
    with _lock:
        _lib.ebb_jax_close()


configure()
atexit.register(close)
