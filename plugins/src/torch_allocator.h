/* Memory for staging that PyTorch's own allocator gives, so that its statistics count it. Called inside calls of ours,
 * with the interpreter's lock or without. */
#ifndef EBB_PLUGINS_TORCH_ALLOCATOR_H
#define EBB_PLUGINS_TORCH_ALLOCATOR_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyTypeObject g_allocator_type;

#endif
