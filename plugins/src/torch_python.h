/* What all C files of the PyTorch plugin need of Python. */
#ifndef EBB_PLUGINS_TORCH_PYTHON_H
#define EBB_PLUGINS_TORCH_PYTHON_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

#include "ebb/ebb.h"

/* Of attributes and methods that are asked for often. */
struct attribute_names {
    PyObject *grad_fn, *version, *detach, *untyped_storage, *cdata, *weak_ref, *free_weak_ref, *expired, *is_conj,
        *is_neg, *may_write;
};
extern struct attribute_names g_names;

/* Before anything else here; false with an exception. */
bool make_attribute_names(void);

/* Ebb's last words as an exception: a runtime error, or a memory error where that is what it is. Null. */
PyObject *raise_last_error(ebb_status status);

/* False with an exception. */
bool read_number(PyObject *object, PyObject *attribute, uint64_t *number);

/* Around what Ebb calls of ours, with the interpreter's lock or without, perhaps while an exception is on its way. */
struct callback {
    PyGILState_STATE state;
    PyObject *type, *value, *trace;
};

struct callback begin_callback(void);
void end_callback(struct callback c);

#endif
