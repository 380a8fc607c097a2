#include "torch_hooks.h"

#include <structmember.h>

#include "torch_pack.h"
#include "torch_records.h"
#include "torch_unpack.h"

/* Before a module's forward: module, args. */
static PyObject *hooks_enter(Hooks *h, PyObject *const *args, Py_ssize_t count) {
    if (count < 1) {
        PyErr_SetString(PyExc_TypeError, "enter(module, args)");
        return NULL;
    }
    if (has_scopes(&h->names)) {
        PyObject *name = PyObject_CallMethod(h->other, "name_of_module", "Oi", args[0], h->names.depth);
        if (name == NULL) {
            return NULL;
        }
        enter_scope(&h->names, name);
    }
    Py_RETURN_NONE;
}

/* After it, also where it raised: module, args, output (None then). */
static PyObject *hooks_leave(Hooks *h, PyObject *const *args, Py_ssize_t count) {
    if (count < 3) {
        PyErr_SetString(PyExc_TypeError, "leave(module, args, output)");
        return NULL;
    }
    if (has_scopes(&h->names) && !leave_scope(&h->names, h->tensor_type, args[2])) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *hooks_reset(Hooks *h, PyObject *Py_UNUSED(unused)) {
    begin_pass(&h->names);
    ++h->pass_count;
    Py_RETURN_NONE;
}

static PyObject *hooks_add_place(Hooks *h, PyObject *args) {
    int type = 0;
    int id = 0;
    unsigned long long runtime = 0;
    int calling_thread = 0;
    int verify = 0;
    if (!PyArg_ParseTuple(args, "iiKpp", &type, &id, &runtime, &calling_thread, &verify)) {
        return NULL;
    }
    const struct device_place added = {
        .device = {type, id},
        .runtime = (ebb_runtime *)(uintptr_t)runtime,
        .calling_thread = calling_thread != 0,
        .verify = verify != 0,
    };
    if (!add_place(&h->places, &added)) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *hooks_forget_places(Hooks *h, PyObject *Py_UNUSED(unused)) {
    return forget_places(&h->places);
}

static PyObject *hooks_lose_places(Hooks *h, PyObject *Py_UNUSED(unused)) {
    lose_places(&h->places);
    Py_RETURN_NONE;
}

static PyObject *hooks_end_step(Hooks *h, PyObject *Py_UNUSED(unused)) {
    end_step_of_records(h->records);
    Py_RETURN_NONE;
}

static PyObject *hooks_held_elsewhere(Hooks *h, PyObject *Py_UNUSED(unused)) {
    return held_elsewhere(h->records);
}

static PyObject *hooks_held_bytes(Hooks *h, PyObject *args) {
    struct dl_device device;
    if (!PyArg_ParseTuple(args, "ii", &device.type, &device.id)) {
        return NULL;
    }
    const struct device_place *place = find_place(&h->places, device);
    return PyLong_FromUnsignedLongLong(place == NULL ? 0 : place->held_bytes);
}

static int hooks_init(Hooks *h, PyObject *args, PyObject *keywords) {
    static char *names[] = {"tensor_type",        "parameter_type", "table",       "other",
                            "current_graph_task", "grad_enabled",   "floor_bytes", NULL};
    unsigned long long floor_bytes = 0;
    PyObject *tensor_type, *parameter_type, *capsule, *other, *task, *enabled;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OOOOOOK", names, &tensor_type, &parameter_type, &capsule, &other,
                                     &task, &enabled, &floor_bytes)) {
        return -1;
    }
    const struct dl_exchange_table *table = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    while (table != NULL && table->version.major > k_dl_major) {
        table = table->older;
    }
    if (table == NULL) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_RuntimeError, "ebb: this PyTorch publishes no DLPack table of version 1");
        }
        return -1;
    }
    h->table = table;
    h->tensor_type = Py_NewRef(tensor_type);
    h->parameter_type = Py_NewRef(parameter_type);
    h->other = Py_NewRef(other);
    h->current_graph_task = Py_NewRef(task);
    h->grad_enabled = Py_NewRef(enabled);
    h->floor_bytes = floor_bytes;
    h->records = PyDict_New();
    h->forwarding = PyDict_New();
    return init_names(&h->names) && h->records != NULL && h->forwarding != NULL ? 0 : -1;
}

static int hooks_traverse(Hooks *h, visitproc visit, void *arg) {
    Py_VISIT(h->other);
    Py_VISIT(h->names.outputs);
    Py_VISIT(h->forwarding);
    return 0;
}

static int hooks_clear(Hooks *h) {
    Py_CLEAR(h->other);
    Py_CLEAR(h->names.outputs);
    Py_CLEAR(h->forwarding);
    return 0;
}

static void hooks_dealloc(Hooks *h) {
    PyObject_GC_UnTrack(h);
    hooks_clear(h);
    clear_names(&h->names);
    Py_XDECREF(h->tensor_type);
    Py_XDECREF(h->parameter_type);
    Py_XDECREF(h->current_graph_task);
    Py_XDECREF(h->grad_enabled);
    Py_XDECREF(h->records);
    PyMem_Free(h->storages.known);
    Py_TYPE(h)->tp_free((PyObject *)h);
}

static PyMethodDef g_hooks_methods[] = {
    {"pack", (PyCFunction)hooks_pack, METH_O, "The saved tensor's stand-in."},
    {"unpack", (PyCFunction)hooks_unpack, METH_O, "The tensor that it stands for."},
    {"pack_in_frame", (PyCFunction)(void (*)(void))hooks_pack_in_frame, METH_FASTCALL,
     "The stand-in of a tensor that can be computed again."},
    {"enter", (PyCFunction)(void (*)(void))hooks_enter, METH_FASTCALL, "Before a module's forward."},
    {"leave", (PyCFunction)(void (*)(void))hooks_leave, METH_FASTCALL, "After it."},
    {"reset", (PyCFunction)hooks_reset, METH_NOARGS, "A forward pass begins, or is over, on the calling thread."},
    {"add_place", (PyCFunction)hooks_add_place, METH_VARARGS,
     "add_place(type, id, runtime, calling_thread, verify): the runtime that serves a device."},
    {"end_step", (PyCFunction)hooks_end_step, METH_NOARGS, "A step is over."},
    {"held_elsewhere", (PyCFunction)hooks_held_elsewhere, METH_NOARGS,
     "[(name, count, bytes)] of what was copied and not freed: somebody else held it."},
    {"held_bytes", (PyCFunction)hooks_held_bytes, METH_VARARGS,
     "held_bytes(type, id): bytes of that device that were copied and not freed"},
    {"forget_places", (PyCFunction)hooks_forget_places, METH_NOARGS,
     "The runtimes are about to be closed; the addresses of those that nobody has memory of."},
    {"lose_places", (PyCFunction)hooks_lose_places, METH_NOARGS, "This is a child process: no runtime lives in it."},
    {NULL, NULL, 0, NULL}};

static PyMemberDef g_hooks_members[] = {
    {"passed_count", T_ULONGLONG, offsetof(Hooks, passed_count), READONLY, "Tensors that were passed through."},
    {"moved_count", T_ULONGLONG, offsetof(Hooks, moved_count), READONLY, "Tensors that Ebb was given."},
    {"moved_bytes", T_ULONGLONG, offsetof(Hooks, moved_bytes), READONLY, "Their bytes."},
    {"changed_count", T_ULONGLONG, offsetof(Hooks, changed_count), READONLY,
     "Tensors that were changed in place before backward took them back."},
    {NULL, 0, 0, 0, NULL}};

PyTypeObject g_hooks_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "ebb._torch_hooks.Hooks",
    .tp_basicsize = sizeof(Hooks),
    .tp_dealloc = (destructor)hooks_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_traverse = (traverseproc)hooks_traverse,
    .tp_clear = (inquiry)hooks_clear,
    .tp_methods = g_hooks_methods,
    .tp_members = g_hooks_members,
    .tp_init = (initproc)hooks_init,
    .tp_new = PyType_GenericNew,
    .tp_doc =
        "The two hooks for saved tensors, and those for modules. `other` answers what is not asked often:\n"
        "pack_subclass(t), pack_odd(t), pack_elsewhere(t): a stand-in for what is no plain tensor, has no memory to\n"
        "name, or is on a device that has no place yet; unpack(p) of such a stand-in;\n"
        "stays(t, data, bytes), is_of_parameter(node), hands_on(node type): what is never moved;\n"
        "new_bytes(size, device type, device id): memory for a reload without a slot;\n"
        "recompute(p): the tensor, computed again;\n"
        "may_write(): whether what asks for a tensor now may write to it;\n"
        "changed(p, version): raises PyTorch's error; name_of_module(module, depth): its name.",
};
