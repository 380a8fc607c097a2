#include "torch_packed.h"

#include <stddef.h>
#include <string.h>
#include <structmember.h>

#include "torch_python.h"

Packed *new_packed(Hooks *h) {
    Packed *p = PyObject_New(Packed, &g_packed_type);
    if (p != NULL) {
        memset((char *)p + offsetof(Packed, hooks), 0, offsetof(Packed, layout) - offsetof(Packed, hooks));
        p->hooks = (Hooks *)Py_NewRef(h);
    }
    return p;
}

PyObject *held_form(PyObject *tensor, bool is_leaf) {
    return is_leaf ? Py_NewRef(tensor) : PyObject_CallMethodNoArgs(tensor, g_names.detach);
}

struct held_source *hold_source(Packed *p, PyObject *tensor, bool is_leaf) {
    struct held_source *source = PyMem_Calloc(1, sizeof *source);
    if (source == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    source->tensor = held_form(tensor, is_leaf);
    source->version = p->version;
    source->packed = p;
    if (source->tensor == NULL) {
        free_source(source);
        return NULL;
    }
    return p->source = source;
}

void free_source(struct held_source *source) {
    Py_XDECREF(source->tensor);
    Py_XDECREF(source->storage);
    PyMem_Free(source);
}

void give_up_source(void *context) {
    struct held_source *source = context;
    const struct callback callback = begin_callback();
    if (source->packed != NULL) {
        uint64_t version = 0;
        if (!read_number(source->tensor, g_names.version, &version)) {
            PyErr_WriteUnraisable(source->tensor);
        } else if (version != source->version) {
            source->packed->changed_to = version;
        }
        if (!hold_weakly(&source->packed->hooks->storages, source->packed->storage, source->storage)) {
            PyErr_WriteUnraisable(source->tensor);
        }
        source->packed->source = NULL;
    }
    free_source(source);
    end_callback(callback);
}

static bool release(Packed *p) {
    ++p->place->busy;
    const ebb_status status = ebb_release(p->place->runtime, p->activation);
    --p->place->busy;
    return status == EBB_OK;
}

/* Perhaps while an exception is on its way, which is nobody's here. */
static void packed_dealloc(Packed *p) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    const bool with_source = p->source != NULL;
    if (with_source) {
        p->source->packed = NULL;
    }
    if (p->activation != 0 && p->place->runtime != NULL && !release(p)) {
        PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "ebb: an activation was not released: %s", ebb_last_error());
        if (PyErr_Occurred()) {
            PyErr_WriteUnraisable(NULL);
        }
    }
    leave_storage(&p->hooks->storages, p->storage, with_source);
    Py_XDECREF(p->tensor);
    Py_XDECREF(p->name);
    Py_XDECREF(p->frame);
    Py_DECREF(p->hooks);
    PyObject_Free(p);
    PyErr_Restore(type, value, trace);
}

static PyMemberDef g_packed_members[] = {
    {"tensor", T_OBJECT, offsetof(Packed, tensor), READONLY, "What is passed through; None where it is moved."},
    {"version", T_ULONGLONG, offsetof(Packed, version), READONLY, "The tensor's version when it was saved."},
    {"activation", T_ULONGLONG, offsetof(Packed, activation), READONLY, "Ebb's handle; 0 where it is passed through."},
    {"size_bytes", T_ULONGLONG, offsetof(Packed, size_bytes), READONLY, "Bytes that are moved."},
    {"name", T_OBJECT, offsetof(Packed, name), READONLY, "The activation's name."},
    {"frame", T_OBJECT, offsetof(Packed, frame), READONLY, "Who can compute it again; None: nobody."},
    {"index", T_PYSSIZET, offsetof(Packed, index), READONLY, "As its which saved tensor."},
    {"is_recomputed", T_BOOL, offsetof(Packed, is_recomputed), READONLY, "Whether it is computed again."},
    {"changed_to", T_ULONGLONG, offsetof(Packed, changed_to), READONLY,
     "The version when the source was given up, if it was another one; else 0."},
    {NULL, 0, 0, 0, NULL}};

PyTypeObject g_packed_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "ebb._torch_hooks.Packed",
    .tp_basicsize = sizeof(Packed),
    .tp_dealloc = (destructor)packed_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_members = g_packed_members,
    .tp_doc = "What PyTorch keeps in place of a saved tensor.",
};
