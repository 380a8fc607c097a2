"""libebb, which lies beside this file, and the parts of its C interface that are not called often (ebb/ebb.h)."""

import ctypes
import os
import pathlib
import threading

_FOLDER = pathlib.Path(__file__).parent


class EbbError(RuntimeError):
    """A call of Ebb failed; the text says which, of what, how much, and what to do. status: as in ebb/ebb.h."""

    def __init__(self, status: int, text: str):
        super().__init__(text)
        self.status = status


FILE = _FOLDER / "libebb.so"
if not FILE.exists():
    raise ImportError(
        f"ebb: {FILE} is missing: install the package with pip install ./plugins, and import it from outside of its sources"
    )
_lib = ctypes.CDLL(os.fspath(FILE))

OFF, ON = 1, 2
PHASE_TRAIN, PHASE_EVALUATE = 1, 2
CLOSE_FORCE = 1
SOURCES_NONE = 2**64 - 1
WRONG_STATE = 3
REPORT_TEXT, REPORT_JSON = 1, 2

_TEXT_SINK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_char), ctypes.c_uint64)


class Options(ctypes.Structure):
    """ebb_runtime_options."""

    _fields_ = [
        ("struct_size", ctypes.c_uint64),
        ("device", ctypes.c_char_p),
        ("device_ordinal", ctypes.c_int32),
        ("lanes", ctypes.c_uint32),
        ("device_budget_bytes", ctypes.c_uint64),
        ("staging_bytes", ctypes.c_uint64),
        ("max_activation_bytes", ctypes.c_uint64),
        ("host_bytes", ctypes.c_uint64),
        ("min_offload_bytes", ctypes.c_uint64),
        ("policy", ctypes.c_char_p),
        ("keep_last", ctypes.c_uint64),
        ("prefetch_bytes", ctypes.c_uint64),
        ("source_bytes", ctypes.c_uint64),
        ("chunk_bytes", ctypes.c_uint64),
        ("sample_every", ctypes.c_uint32),
        ("verify", ctypes.c_int32),
        ("staging_memory", ctypes.c_void_p),
        ("allocator", ctypes.c_void_p),
        ("log", ctypes.c_void_p),
        ("log_context", ctypes.c_void_p),
        ("log_level", ctypes.c_int32),
        ("host_processes", ctypes.c_uint32),
        ("host_device_bytes", ctypes.c_uint64),
        ("host_d2h_bytes_per_second", ctypes.c_uint64),
        ("host_h2d_bytes_per_second", ctypes.c_uint64),
        ("record", ctypes.c_char_p),
        ("calibrate", ctypes.c_int32),
        ("nvtx", ctypes.c_int32),
        ("cuda_library", ctypes.c_char_p),
    ]


class Statistics(ctypes.Structure):
    """ebb_statistics."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "struct_size steps sampled_steps live_activations offload_calls kept_count offloaded_count recompute_count "
            "forwarded_count reloads_prefetched reloads_on_demand prefetches_dropped no_slot_count d2h_bytes h2d_bytes "
            "given_up_bytes hidden_ns exposed_ns device_held_bytes device_peak_bytes kept_bytes source_bytes "
            "source_peak_bytes staging_bytes staging_used_bytes staging_peak_bytes pinned_bytes pinned_used_bytes "
            "pinned_peak_bytes device_budget_bytes over_budget_policy_bytes over_budget_failure_bytes "
            "over_budget_size_bytes over_budget_caller_bytes order_mismatches device_allocations graphs "
            "graph_pinned_bytes graph_staging_bytes"
        ).split()
    ]


_lib.ebb_last_error.restype = ctypes.c_char_p
_lib.ebb_status_name.restype = ctypes.c_char_p
_lib.ebb_build_info.restype = ctypes.c_char_p
for _name, _arguments in {
    "ebb_runtime_create": [ctypes.POINTER(Options), ctypes.POINTER(ctypes.c_void_p)],
    "ebb_runtime_close": [ctypes.c_void_p, ctypes.c_uint32],
    "ebb_step": [ctypes.c_void_p, ctypes.c_int32],
    "ebb_stats": [ctypes.c_void_p, ctypes.POINTER(Statistics)],
    "ebb_report_write": [ctypes.c_void_p, ctypes.c_int32, _TEXT_SINK, ctypes.c_void_p],
    "ebb_progress": [ctypes.c_void_p],
    "ebb_recompute_begin": [ctypes.c_void_p, ctypes.c_uint64],
    "ebb_recompute_end": [ctypes.c_void_p],
    "ebb_plan_export": [ctypes.c_void_p, _TEXT_SINK, ctypes.c_void_p],
    "ebb_plan_import": [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64],
}.items():
    getattr(_lib, _name).argtypes = _arguments
    getattr(_lib, _name).restype = ctypes.c_int32


def version() -> str:
    """Of the library: "0.1.0"."""
    return build_info().split()[1].rstrip(",")


def build_info() -> str:
    """Version, compiler, build type and the devices built in, on one line."""
    return _lib.ebb_build_info().decode()


def _check(status: int) -> None:
    if status != 0:
        raise EbbError(status, f"ebb: {_lib.ebb_status_name(status).decode()}: {_lib.ebb_last_error().decode()}")


_KINDS = dict(Options._fields_)


def options_of(fields: dict) -> Options:
    """Raises TypeError or ValueError, which name the field: ctypes takes numbers for texts and wraps large ones."""
    given = Options(struct_size=ctypes.sizeof(Options))
    for name, value in fields.items():
        is_text = _KINDS.get(name) is ctypes.c_char_p
        if value is None and is_text:
            continue
        if not isinstance(value, str if is_text else int):
            raise TypeError(f"ebb: {name} is {value!r}: it is {'a text' if is_text else 'a whole number'}")
        if not is_text and not 0 <= value < 1 << 8 * ctypes.sizeof(_KINDS.get(name, ctypes.c_uint64)):
            raise ValueError(f"ebb: {name} is {value}: it must not be negative, nor larger than its field")
        setattr(given, name, value.encode() if is_text else value)
    return given


class Runtime:
    """An ebb_runtime; the extension modules get its address. Thread-safe; one that was closed does nothing."""

    def __init__(self, **options):
        given = options_of(options)
        handle = ctypes.c_void_p()
        _check(_lib.ebb_runtime_create(ctypes.byref(given), ctypes.byref(handle)))
        self._take(handle.value)

    def _take(self, address: int) -> None:
        self.address: int | None = address
        self._lock = threading.RLock()  # ctypes lets other threads run during a call, which may close it

    def _call(self, function, *arguments) -> None:
        with self._lock:
            if self.address is not None:
                _check(function(self.address, *arguments))

    def _text(self, function, *arguments) -> str:
        """What the function writes to its sink."""
        pieces: list[bytes] = []
        sink = _TEXT_SINK(lambda _, text, size: pieces.append(ctypes.string_at(text, size)))
        self._call(function, *arguments, sink, None)
        return b"".join(pieces).decode()

    @classmethod
    def at(cls, address: int) -> "Runtime":
        """One that somebody else made and closes."""
        runtime = cls.__new__(cls)
        runtime._take(address)
        return runtime

    def step(self, phase: int = PHASE_TRAIN) -> None:
        self._call(_lib.ebb_step, phase)

    def progress(self) -> None:
        self._call(_lib.ebb_progress)

    def recompute_begin(self, size_bytes: int) -> None:
        self._call(_lib.ebb_recompute_begin, size_bytes)

    def recompute_end(self) -> None:
        self._call(_lib.ebb_recompute_end)

    def statistics(self) -> dict[str, int]:
        read = Statistics(struct_size=ctypes.sizeof(Statistics))
        self._call(_lib.ebb_stats, ctypes.byref(read))
        return {name: getattr(read, name) for name, _ in Statistics._fields_ if name != "struct_size"}

    def report(self, form: int = REPORT_TEXT) -> str:
        return self._text(_lib.ebb_report_write, form)

    def plan(self) -> str | None:
        """The plan that is followed, as JSON; None while there is none."""
        try:
            return self._text(_lib.ebb_plan_export) or None
        except EbbError as why:
            if why.status == WRONG_STATE:
                return None
            raise

    def follow(self, plan: str) -> None:
        """From the next step on. EbbError where it is not for all of what this runtime has recorded."""
        text = plan.encode()
        self._call(_lib.ebb_plan_import, text, len(text))

    def close(self) -> None:
        with self._lock:
            address, self.address = self.address, None
            if address is not None:
                _check(_lib.ebb_runtime_close(address, CLOSE_FORCE))
