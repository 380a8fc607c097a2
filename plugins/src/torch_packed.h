/* What PyTorch keeps in place of a saved tensor. */
#ifndef EBB_PLUGINS_TORCH_PACKED_H
#define EBB_PLUGINS_TORCH_PACKED_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

#include "ebb/ebb.h"
#include "torch_hooks.h"
#include "torch_layout.h"

/* A source that Ebb holds until it is given up. */
struct held_source {
    PyObject *tensor;
    PyObject *storage; /* the tensor may be given another one meanwhile */
    uint64_t version;
    struct packed *packed; /* null when that is gone */
};

typedef struct packed {
    PyObject_HEAD Hooks *hooks;
    struct device_place *place;
    PyObject *tensor;           /* what is passed through; null for what is moved */
    struct held_source *source; /* of what is moved, until it was given up */
    uint64_t version;
    ebb_activation activation;
    uint64_t size_bytes;
    const char *data; /* where the bytes were */
    PyObject *name;
    struct name_record *record;
    uintptr_t storage;
    uint64_t changed_to;  /* the version when it was given up, if that was another */
    PyObject *frame;      /* null, or who can compute it again ... */
    Py_ssize_t index;     /* ... as its which saved tensor */
    bool is_recomputed;   /* and will */
    bool was_lent;        /* PyTorch was given a slot of it */
    struct layout layout; /* last: of what is passed through there is none */
} Packed;

extern PyTypeObject g_packed_type;

/* All of it 0 but its layout; null with an exception. */
Packed *new_packed(Hooks *h);

/* What an operation made may be saved by that very operation: it must not hold the node that holds it, so it is held
 * detached. What none made is held as it is: PyTorch hands it on as it is, and looks at who else has it before it takes
 * it for a gradient. Null with an exception. */
PyObject *held_form(PyObject *tensor, bool is_leaf);

/* The source of `p`; null with an exception. */
struct held_source *hold_source(Packed *p, PyObject *tensor, bool is_leaf);
void free_source(struct held_source *source);

/* Called by Ebb when the source's memory may be reused. A version that is another by now is remembered: the bytes may
 * be those of before or of after. */
void give_up_source(void *source);

#endif
