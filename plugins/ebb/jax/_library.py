"""libebb_jax, which lies beside libebb: its handlers, registered with XLA, and what is asked of it."""

import atexit
import ctypes
import threading

import jax

from ebb import _library

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

for _platform in ("cpu",):
    for _call in ("offload", "reload"):
        jax.ffi.register_ffi_target(
            f"ebb_{_call}", jax.ffi.pycapsule(getattr(_lib, f"ebb_jax_{_call}_{_platform}")), platform=_platform
        )

_lock = threading.Lock()
_given: dict = {}
_kept: list = []  # texts that the library points to


def configure(survivor_memory: int, **options) -> None:
    """For runtimes that are made from now on."""
    given = _library.Options(struct_size=ctypes.sizeof(_library.Options))
    for name, value in ({"policy": "offload", "min_offload_bytes": 1} | options).items():
        setattr(given, name, value.encode() if isinstance(value, str) else value)
    _kept.append(given)
    _lib.ebb_jax_configure(ctypes.byref(given), survivor_memory)


def runtimes() -> dict[str, _library.Runtime]:
    """By device, of those that moved something."""
    found = {}
    _lib.ebb_jax_each_runtime(
        _EACH(lambda name, address: found.setdefault(name.decode(), _library.Runtime.at(address)) and None)
    )
    return found


def live() -> tuple[int, int]:
    """Wrapped calls whose arrays are in Ebb's memory, and the bytes of them."""
    return _lib.ebb_jax_live_count(), _lib.ebb_jax_live_bytes()


def release() -> int:
    return _lib.ebb_jax_release()


def close() -> None:
    _lib.ebb_jax_close()


configure(survivor_memory=4 << 30)
atexit.register(close)
