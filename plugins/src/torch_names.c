#include "torch_names.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "torch_python.h"

enum { k_name_bytes = 256, k_deepest_output = 4 };

bool init_names(struct tensor_names *n) {
    n->outputs = PyDict_New();
    n->thread = PyThread_get_thread_ident();
    return n->outputs != NULL;
}

static void leave_all(struct tensor_names *n) {
    while (n->depth > 0) {
        --n->depth;
        if (n->depth < k_most_depth) {
            Py_CLEAR(n->scopes[n->depth]);
        }
    }
}

void clear_names(struct tensor_names *n) {
    Py_CLEAR(n->outputs);
    leave_all(n);
    for (int i = 0; i < k_cached_names; ++i) {
        Py_CLEAR(n->cached[i].scope);
        Py_CLEAR(n->cached[i].producer_type);
        Py_CLEAR(n->cached[i].name);
    }
}

void begin_pass(struct tensor_names *n) {
    leave_all(n);
    n->thread = PyThread_get_thread_ident();
    PyDict_Clear(n->outputs);
}

bool has_scopes(const struct tensor_names *n) {
    return PyThread_get_thread_ident() == n->thread;
}

void enter_scope(struct tensor_names *n, PyObject *name) {
    if (n->depth < k_most_depth) {
        n->scopes[n->depth] = name;
    } else {
        Py_DECREF(name);
    }
    ++n->depth;
}

/* Outputs that lie deeper in each other than `deepest` have no names. */
static bool name_output(struct tensor_names *n, PyObject *tensor_type, PyObject *output, PyObject *name, int deepest) {
    if (deepest == 0) {
        return true;
    }
    if ((PyObject *)Py_TYPE(output) == tensor_type) {
        PyObject *producer = PyObject_GetAttr(output, g_names.grad_fn);
        const bool fine =
            producer != NULL && (producer == Py_None || PyDict_SetDefault(n->outputs, producer, name) != NULL);
        Py_XDECREF(producer);
        return fine;
    }
    if (PyTuple_Check(output) || PyList_Check(output)) {
        const Py_ssize_t size = PySequence_Fast_GET_SIZE(output);
        for (Py_ssize_t i = 0; i < size; ++i) {
            if (!name_output(n, tensor_type, PySequence_Fast_GET_ITEM(output, i), name, deepest - 1)) {
                return false;
            }
        }
    } else if (PyDict_Check(output)) {
        PyObject *key, *value;
        Py_ssize_t at = 0;
        while (PyDict_Next(output, &at, &key, &value)) {
            if (!name_output(n, tensor_type, value, name, deepest - 1)) {
                return false;
            }
        }
    }
    return true;
}

bool leave_scope(struct tensor_names *n, PyObject *tensor_type, PyObject *output) {
    if (n->depth == 0 || --n->depth >= k_most_depth) {
        return true;
    }
    PyObject *name = n->scopes[n->depth];
    n->scopes[n->depth] = NULL;
    const bool fine = PyUnicode_GET_LENGTH(name) == 0 || name_output(n, tensor_type, output, name, k_deepest_output);
    Py_DECREF(name);
    return fine;
}

static PyObject *make_name(PyObject *scope, PyTypeObject *producer) {
    const char *what = producer == NULL ? "output" : producer->tp_name;
    const char *dot = strrchr(what, '.');
    what = dot == NULL ? what : dot + 1;
    const char *path = scope == NULL ? "" : PyUnicode_AsUTF8(scope);
    if (path == NULL) {
        return NULL;
    }
    size_t length = strlen(what);
    for (const char *at = what + 1; *what != 0 && (at = strstr(at, "Backward")) != NULL; ++at) {
        length = (size_t)(at - what); /* the last one, and never all of it */
    }
    char text[k_name_bytes];
    snprintf(text, sizeof text, "%s%s%.*s", path, *path == 0 ? "" : ".", (int)length, what);
    for (char *at = text; *at != 0; ++at) {
        *at = *at == '/' ? ':' : *at; /* which parts scopes there */
    }
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "ignore"); /* a character may be cut */
}

PyObject *name_of(struct tensor_names *n, PyObject *producer) {
    PyTypeObject *const type = producer == Py_None ? NULL : Py_TYPE(producer);
    if (type != NULL) {
        PyObject *name = PyDict_GetItemWithError(n->outputs, producer);
        if (name != NULL || PyErr_Occurred()) {
            return Py_XNewRef(name);
        }
    }
    const int innermost = n->depth > k_most_depth ? k_most_depth : n->depth;
    PyObject *const scope = innermost == 0 ? NULL : n->scopes[innermost - 1];
    const uintptr_t hash = ((uintptr_t)scope >> 4U) * 31 + ((uintptr_t)type >> 4U);
    struct cached_name *cached = &n->cached[(hash ^ (hash >> 8U)) % k_cached_names];
    if (cached->name == NULL || cached->scope != scope || (PyTypeObject *)cached->producer_type != type) {
        PyObject *name = make_name(scope, type);
        if (name == NULL) {
            return NULL;
        }
        Py_XSETREF(cached->name, name);
        Py_XSETREF(cached->scope, Py_XNewRef(scope));
        Py_XSETREF(cached->producer_type, Py_XNewRef(type));
    }
    return Py_NewRef(cached->name);
}
