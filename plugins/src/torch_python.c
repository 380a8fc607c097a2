#include "torch_python.h"

struct attribute_names g_names;

bool make_attribute_names(void) {
    static const struct {
        PyObject **name;
        const char *text;
    } k_names[] = {
        {&g_names.grad_fn, "grad_fn"},
        {&g_names.version, "_version"},
        {&g_names.detach, "detach"},
        {&g_names.untyped_storage, "untyped_storage"},
        {&g_names.cdata, "_cdata"},
        {&g_names.weak_ref, "_weak_ref"},
        {&g_names.free_weak_ref, "_free_weak_ref"},
        {&g_names.expired, "_expired"},
        {&g_names.is_conj, "is_conj"},
        {&g_names.is_neg, "is_neg"},
        {&g_names.may_write, "may_write"},
    };
    for (size_t i = 0; i < sizeof k_names / sizeof k_names[0]; ++i) {
        *k_names[i].name = PyUnicode_InternFromString(k_names[i].text);
        if (*k_names[i].name == NULL) {
            return false;
        }
    }
    return true;
}

PyObject *raise_last_error(ebb_status status) {
    const bool memory = status == EBB_OUT_OF_HOST_MEMORY || status == EBB_OUT_OF_DEVICE_MEMORY || status == EBB_NO_SLOT;
    PyErr_Format(memory ? PyExc_MemoryError : PyExc_RuntimeError, "ebb: %s: %s", ebb_status_name(status),
                 ebb_last_error());
    return NULL;
}

bool read_number(PyObject *object, PyObject *attribute, uint64_t *number) {
    PyObject *value = PyObject_GetAttr(object, attribute);
    if (value == NULL) {
        return false;
    }
    *number = PyLong_AsUnsignedLongLongMask(value);
    Py_DECREF(value);
    return !PyErr_Occurred();
}

struct callback begin_callback(void) {
    struct callback c = {.state = PyGILState_Ensure()};
    PyErr_Fetch(&c.type, &c.value, &c.trace);
    return c;
}

void end_callback(struct callback c) {
    PyErr_Restore(c.type, c.value, c.trace);
    PyGILState_Release(c.state);
}
