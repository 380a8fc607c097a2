/* What PyTorch calls at every tensor that it saves: its stand-in, or null with an exception. */
#ifndef EBB_PLUGINS_TORCH_PACK_H
#define EBB_PLUGINS_TORCH_PACK_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "torch_hooks.h"

PyObject *hooks_pack(Hooks *h, PyObject *tensor);

/* Of what Ebb may decide to have computed again: frame, its which saved tensor, the tensor, stand-ins of what it is
 * computed from. */
PyObject *hooks_pack_in_frame(Hooks *h, PyObject *const *args, Py_ssize_t count);

#endif
