/* What PyTorch calls at every tensor that it takes back: the tensor, or null with an exception. */
#ifndef EBB_PLUGINS_TORCH_UNPACK_H
#define EBB_PLUGINS_TORCH_UNPACK_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "torch_hooks.h"

PyObject *hooks_unpack(Hooks *h, PyObject *stand_in);

#endif
