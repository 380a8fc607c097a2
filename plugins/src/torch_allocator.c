#include "torch_allocator.h"

#include <stdint.h>

#include "ebb/ebb.h"
#include "torch_python.h"

typedef struct {
    PyObject_HEAD PyObject *source; /* alloc(size, home) -> address or 0, free(address, home), available() */
    ebb_allocator table;
} Allocator;

/* What Python answered as a number; an exception is told and counts as 0: the caller goes on without. */
static uint64_t answered(PyObject *source, PyObject *answer) {
    const uint64_t number = answer == NULL || answer == Py_None ? 0 : PyLong_AsUnsignedLongLong(answer);
    Py_XDECREF(answer);
    if (PyErr_Occurred()) {
        PyErr_WriteUnraisable(source);
        return 0;
    }
    return number;
}

static void *lent_alloc(void *context, uint64_t size_bytes, uint64_t Py_UNUSED(alignment), ebb_stream home) {
    PyObject *source = context;
    const struct callback callback = begin_callback();
    const uint64_t address = answered(
        source, PyObject_CallMethod(source, "alloc", "KK", (unsigned long long)size_bytes, (unsigned long long)home));
    end_callback(callback);
    return (void *)(uintptr_t)address;
}

static void lent_free(void *context, void *data, uint64_t Py_UNUSED(size_bytes), ebb_stream home) {
    PyObject *source = context;
    const struct callback callback = begin_callback();
    (void)answered(source, PyObject_CallMethod(source, "free", "KK", (unsigned long long)(uintptr_t)data,
                                               (unsigned long long)home));
    end_callback(callback);
}

static uint64_t lent_available(void *context) {
    PyObject *source = context;
    const struct callback callback = begin_callback();
    const uint64_t bytes = answered(source, PyObject_CallMethod(source, "available", NULL));
    end_callback(callback);
    return bytes;
}

static int allocator_init(Allocator *a, PyObject *args, PyObject *Py_UNUSED(keywords)) {
    PyObject *source = NULL;
    if (!PyArg_ParseTuple(args, "O", &source)) {
        return -1;
    }
    Py_XSETREF(a->source, Py_NewRef(source));
    a->table = (ebb_allocator){lent_alloc, lent_free, lent_available, source};
    return 0;
}

static void allocator_dealloc(Allocator *a) {
    Py_XDECREF(a->source);
    Py_TYPE(a)->tp_free((PyObject *)a);
}

static PyObject *allocator_address(Allocator *a, void *Py_UNUSED(closure)) {
    return PyLong_FromVoidPtr(&a->table);
}

static PyGetSetDef g_allocator_members[] = {{"address", (getter)allocator_address, NULL, "Of its ebb_allocator.", NULL},
                                            {NULL, NULL, NULL, NULL, NULL}};

PyTypeObject g_allocator_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "ebb._torch_hooks.Allocator",
    .tp_basicsize = sizeof(Allocator),
    .tp_dealloc = (destructor)allocator_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_getset = g_allocator_members,
    .tp_init = (initproc)allocator_init,
    .tp_new = PyType_GenericNew,
    .tp_doc =
        "Allocator(source): source.alloc(size, home) -> address, or 0 to refuse; source.free(address, home);\n"
        "source.available() -> bytes. It outlives the runtime that it is given to.",
};
