#include "torch_storages.h"

#include <string.h>

#include "torch_python.h"

static struct known_storage *find_storage(const struct storages *s, uintptr_t address) {
    if (s->capacity == 0) {
        return NULL;
    }
    const size_t mask = s->capacity - 1;
    for (size_t i = (address >> 4U) & mask;; i = (i + 1) & mask) {
        if (s->known[i].address == address || s->known[i].address == 0) {
            return &s->known[i];
        }
    }
}

static bool grow_storages(struct storages *s) {
    struct known_storage *old = s->known;
    const size_t old_capacity = s->capacity;
    const size_t capacity = old_capacity == 0 ? 256 : 2 * old_capacity;
    struct known_storage *grown = PyMem_Calloc(capacity, sizeof *grown);
    if (grown == NULL) {
        PyErr_NoMemory();
        return false;
    }
    s->known = grown;
    s->capacity = capacity;
    for (size_t i = 0; i < old_capacity; ++i) {
        if (old[i].address != 0) {
            *find_storage(s, old[i].address) = old[i];
        }
    }
    PyMem_Free(old);
    return true;
}

uintptr_t use_storage(struct storages *s, PyObject *tensor, uint64_t *id, PyObject **held) {
    PyObject *storage = PyObject_CallMethodNoArgs(tensor, g_names.untyped_storage);
    if (storage == NULL) {
        return 0;
    }
    uint64_t address = 0;
    struct known_storage *known = NULL;
    if (!read_number(storage, g_names.cdata, &address) || address == 0 ||
        (s->count * 2 >= s->capacity && !grow_storages(s))) {
        goto failed;
    }
    known = find_storage(s, address);
    if (known->address == 0) {
        *known = (struct known_storage){.address = address, .id = ++s->last_id};
        ++s->count;
    }
    ++known->users;
    ++known->sources;
    *id = known->id;
    *held = storage;
    return address;
failed:
    Py_DECREF(storage);
    if (!PyErr_Occurred()) {
        PyErr_SetString(PyExc_RuntimeError, "the tensor's storage has no address");
    }
    return 0;
}

bool hold_weakly(struct storages *s, uintptr_t address, PyObject *storage) {
    struct known_storage *known = find_storage(s, address);
    --known->sources;
    if (known->type != NULL) {
        return true;
    }
    PyObject *handle = PyObject_CallMethodNoArgs(storage, g_names.weak_ref);
    if (handle != NULL) {
        known = find_storage(s, address); /* a call of Python's may have moved it */
        known->handle = handle;
        known->type = Py_NewRef(Py_TYPE(storage));
    }
    return handle != NULL;
}

bool is_held_elsewhere(struct storages *s, uintptr_t address) {
    struct known_storage *known = find_storage(s, address);
    if (known->type == NULL || known->sources != 0) {
        return false;
    }
    PyObject *expired = PyObject_CallMethodOneArg(known->type, g_names.expired, known->handle);
    const bool held = expired == Py_False;
    if (expired == NULL) {
        PyErr_Clear();
    }
    Py_XDECREF(expired);
    return held;
}

void leave_storage(struct storages *s, uintptr_t address, bool with_source) {
    struct known_storage *known = address == 0 ? NULL : find_storage(s, address);
    if (known == NULL || known->address == 0) {
        return;
    }
    known->sources -= with_source ? 1 : 0;
    if (--known->users != 0) {
        return;
    }
    PyObject *handle = known->handle;
    PyObject *type = known->type;
    /* What stands behind it in its run moves up, so that no gap cuts a later one off. */
    const size_t mask = s->capacity - 1;
    size_t gap = (size_t)(known - s->known);
    for (size_t i = (gap + 1) & mask; s->known[i].address != 0; i = (i + 1) & mask) {
        const size_t wanted = (s->known[i].address >> 4U) & mask;
        if (((i - wanted) & mask) >= ((i - gap) & mask)) {
            s->known[gap] = s->known[i];
            gap = i;
        }
    }
    memset(&s->known[gap], 0, sizeof s->known[gap]);
    --s->count;
    if (type == NULL) {
        return;
    }
    PyObject *freed = PyObject_CallMethodOneArg(type, g_names.free_weak_ref, handle);
    if (freed == NULL) {
        PyErr_WriteUnraisable(type);
    }
    Py_XDECREF(freed);
    Py_DECREF(handle);
    Py_DECREF(type);
}

bool is_shared(const struct storages *s, uintptr_t address) {
    return find_storage(s, address)->users > 1;
}
