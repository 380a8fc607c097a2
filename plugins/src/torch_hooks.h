/* What PyTorch calls at every tensor that it saves for backward (pack) and at every one that it takes back (unpack).
 * Here is only what must be quick: the usual tensor, on a device that is known. Everything else is asked of `other`, an
 * object of Python.
 *
 * All of it runs under the interpreter's lock, which is let go only while a thread blocks for a copy. Deleters of
 * sources come from inside calls of Ebb, which may be such a blocking one: they take the lock themselves. */
#ifndef EBB_PLUGINS_TORCH_HOOKS_H
#define EBB_PLUGINS_TORCH_HOOKS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#include "dlpack_table.h"
#include "torch_names.h"
#include "torch_places.h"
#include "torch_storages.h"

typedef struct {
    PyObject_HEAD PyObject *tensor_type, *parameter_type;
    PyObject *other; /* see docs of Hooks */
    PyObject *current_graph_task;
    PyObject *grad_enabled;
    PyObject *records;    /* torch_records.h */
    PyObject *forwarding; /* dict: type of what produced a tensor -> whether it is a view or a cast */
    const struct dl_exchange_table *table;
    uint64_t floor_bytes;
    struct places places;
    struct tensor_names names;
    struct storages storages;
    uint64_t pass_count; /* of forward passes */
    uint64_t passed_count, moved_count, moved_bytes, changed_count;
} Hooks;

extern PyTypeObject g_hooks_type;

#endif
