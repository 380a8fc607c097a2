"""The functions by which the hooks look at tensors and make them: DLPack's table, as PyTorch publishes it since 2.10,
or one of the same shape that goes through DLPack's capsules: correct with any PyTorch, and slower."""

import ctypes
import threading

import torch
from torch.utils.dlpack import from_dlpack, to_dlpack

_MOST_DIMENSIONS = 64  # of PyTorch
_CAPSULE = b"dltensor"
_CAPSULE_OF_VERSION_1 = b"dltensor_versioned"
_CAPSULE_OF_TABLE = b"dlpack_exchange_api"


class _Tensor(ctypes.Structure):
    """DLTensor. Declared as the specification has it, as the others are (plugins/src/dlpack_table.h)."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("dimensions", ctypes.c_int32),
        ("type_code", ctypes.c_uint8),
        ("type_bits", ctypes.c_uint8),
        ("type_lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    """The beginning of DLManagedTensorVersioned."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    ]


_VIEW_OBJECT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(_Tensor))
_TO_OBJECT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
_CURRENT_STREAM = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))


class _Table(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("older", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),  # these two are null: the hooks do not call them
        ("from_object", ctypes.c_void_p),
        ("to_object", _TO_OBJECT),
        ("view_object", _VIEW_OBJECT),
        ("current_stream", _CURRENT_STREAM),
    ]


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]
_hold = ctypes.pythonapi.Py_IncRef
_hold.restype = None
_hold.argtypes = [ctypes.py_object]

_said = threading.local()


def _numbers():
    """Where a thread's last view has its sizes: who looks at one reads them before looking at the next."""
    if not hasattr(_said, "numbers"):
        _said.numbers = (ctypes.c_int64 * (2 * _MOST_DIMENSIONS))()
    return _said.numbers


# Called inside of compiled code, too, whose compiler would look into them.
@_VIEW_OBJECT
@torch.compiler.disable
def _view_object(tensor, out):
    try:
        capsule = to_dlpack(tensor)
        ctypes.memmove(out, _pointer_of(capsule, _CAPSULE), ctypes.sizeof(_Tensor))
        sizes, strides = tensor.shape, tensor.stride()  # a capsule may have other strides where a size is 1
        numbers = _numbers()
        numbers[: len(sizes)] = sizes
        numbers[_MOST_DIMENSIONS : _MOST_DIMENSIONS + len(strides)] = strides
        out[0].shape = ctypes.addressof(numbers)
        out[0].strides = ctypes.addressof(numbers) + _MOST_DIMENSIONS * ctypes.sizeof(ctypes.c_int64)
        return 0
    except Exception:  # what PyTorch has no capsule for; the hooks ask no further
        return -1


@_TO_OBJECT
@torch.compiler.disable
def _to_object(managed, out):
    try:
        tensor = from_dlpack(_new_capsule(managed, _CAPSULE_OF_VERSION_1, None))
        _hold(tensor)
        out[0] = id(tensor)
        return 0
    except Exception:
        _Managed.from_address(managed).deleter(managed)
        return -1


@_CURRENT_STREAM
@torch.compiler.disable
def _current_stream(device_type, ordinal, out):
    try:
        out[0] = torch.cuda.current_stream(ordinal).cuda_stream
        return 0
    except Exception:
        return -1


_plain = _Table(major=1, minor=0, to_object=_to_object, view_object=_view_object, current_stream=_current_stream)


def plain_table():
    """In a capsule, as the published one."""
    return _new_capsule(ctypes.addressof(_plain), _CAPSULE_OF_TABLE, None)


def table():
    """The published one, where there is one."""
    return getattr(torch.Tensor, "__dlpack_c_exchange_api__", None) or plain_table()
