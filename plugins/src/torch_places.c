#include "torch_places.h"

#include "torch_python.h"

bool add_place(struct places *places, const struct device_place *added) {
    struct device_place *place = places->count == k_most_places ? NULL : PyMem_RawCalloc(1, sizeof *place);
    if (place == NULL) {
        PyErr_Format(PyExc_RuntimeError, "ebb: more than %d devices in one process", (int)k_most_places);
        return false;
    }
    place->device = added->device;
    place->runtime = added->runtime;
    place->calling_thread = added->calling_thread;
    place->verify = added->verify;
    places->at[places->count++] = place;
    return true;
}

struct device_place *find_place(const struct places *places, struct dl_device device) {
    for (int i = 0; i < places->count; ++i) {
        if (places->at[i]->device.type == device.type && places->at[i]->device.id == device.id) {
            return places->at[i];
        }
    }
    return NULL;
}

PyObject *forget_places(struct places *places) {
    PyObject *over = PyList_New(0);
    for (int i = 0; i < places->count; ++i) {
        struct device_place *place = places->at[i];
        if (atomic_load(&place->lent) != 0 || place->busy != 0) {
            continue;
        }
        PyObject *address = PyLong_FromVoidPtr(place->runtime);
        place->runtime = NULL;
        if (over != NULL && (address == NULL || PyList_Append(over, address) != 0)) {
            Py_CLEAR(over);
        }
        Py_XDECREF(address);
    }
    places->count = 0;
    return over;
}

void lose_places(struct places *places) {
    for (int i = 0; i < places->count; ++i) {
        places->at[i]->runtime = NULL;
    }
    places->count = 0;
}

bool current_stream(const struct device_place *place, const struct dl_exchange_table *table, ebb_stream *stream) {
    *stream = EBB_STREAM_CALLING_THREAD;
    if (place->calling_thread) {
        return true;
    }
    void *raw = NULL;
    if (table->current_stream(place->device.type, place->device.id, &raw) != 0) {
        if (!PyErr_Occurred()) {
            PyErr_Format(PyExc_RuntimeError, "ebb: PyTorch tells no current stream of device %d",
                         (int)place->device.id);
        }
        return false;
    }
    *stream = raw == NULL ? EBB_STREAM_LEGACY : (ebb_stream)(uintptr_t)raw;
    return true;
}

bool wait_for(const struct device_place *place, ebb_activation activation) {
    ebb_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = activation == 0 ? ebb_wait_room(place->runtime) : ebb_wait(place->runtime, activation);
    if (status != EBB_OK) {
        Py_BLOCK_THREADS;
        raise_last_error(status);
        return false;
    }
    Py_END_ALLOW_THREADS;
    return true;
}
