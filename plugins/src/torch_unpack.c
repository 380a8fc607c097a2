#include "torch_unpack.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "torch_packed.h"
#include "torch_python.h"
#include "torch_records.h"

/* What a reload gave, as a tensor: a slot's memory until PyTorch frees it, or bytes of PyTorch's own. */
struct reloaded {
    struct DLManagedTensorVersioned managed;
    int64_t shape[k_most_dimensions], strides[k_most_dimensions];
    struct device_place *place;
    struct name_record *record;
    ebb_claim claim; /* 0: none */
    ebb_stream consumer;
    PyObject *bytes; /* null: none */
};

/* On any thread, with or without the interpreter's lock. What reads the memory is on the consumer's stream by now. */
static void end_reloaded(struct DLManagedTensorVersioned *managed) {
    struct reloaded *r = managed->context;
    if (r->claim != 0) {
        atomic_fetch_sub(&r->record->lent, 1);
        if (r->place->runtime != NULL) {
            ebb_return(r->place->runtime, r->claim, r->consumer);
        }
        atomic_fetch_sub(&r->place->lent, 1); /* last: until then the runtime lives */
    }
    if (r->bytes != NULL) {
        const PyGILState_STATE state = PyGILState_Ensure();
        Py_DECREF(r->bytes);
        PyGILState_Release(state);
    }
    free(r);
}

/* Takes claim and bytes. `data` is the first byte that was moved. */
static PyObject *as_tensor(const Hooks *h, Packed *p, void *data, ebb_claim claim, ebb_stream consumer,
                           PyObject *bytes) {
    struct reloaded *r = malloc(sizeof *r);
    if (r == NULL) {
        if (claim != 0) {
            ebb_return(p->place->runtime, claim, consumer);
        }
        Py_XDECREF(bytes);
        return PyErr_NoMemory();
    }
    const size_t sizes_bytes = (size_t)p->layout.dimensions * sizeof r->shape[0];
    memcpy(r->shape, p->layout.shape, sizes_bytes);
    memcpy(r->strides, p->layout.strides, sizes_bytes);
    r->place = p->place;
    r->record = p->record;
    if (claim != 0) {
        atomic_fetch_add(&r->record->lent, 1);
        atomic_fetch_add(&r->place->lent, 1);
        p->was_lent = true;
    }
    r->claim = claim;
    r->consumer = consumer;
    r->bytes = bytes;
    r->managed = (struct DLManagedTensorVersioned){
        .version = {k_dl_major, 0},
        .context = r,
        .deleter = end_reloaded,
        .tensor = {.data = (char *)data - p->layout.first_bytes,
                   .device = p->place->device,
                   .dimensions = p->layout.dimensions,
                   .type = p->layout.type,
                   .shape = r->shape,
                   .strides = r->strides},
    };
    void *tensor = NULL;
    if (h->table->to_object(&r->managed, &tensor) == 0) { /* taken either way */
        return tensor;
    }
    if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_RuntimeError, "ebb: PyTorch makes no tensor of what came back of %R", p->name);
    }
    return NULL;
}

/* Into memory of PyTorch's own: where it may be held for longer, and where there is no slot. As far from an aligned
 * address as the source was: kernels are chosen by that, and results must not differ. */
static PyObject *reload_copy(Hooks *h, Packed *p, ebb_stream consumer) {
    PyObject *bytes =
        PyObject_CallMethod(h->other, "new_bytes", "Kii", (unsigned long long)(p->size_bytes + k_alignment),
                            (int)p->place->device.type, (int)p->place->device.id);
    if (bytes == NULL) {
        return NULL;
    }
    struct dl_tensor view;
    if (h->table->view_object(bytes, &view) != 0) {
        Py_DECREF(bytes);
        return NULL;
    }
    char *data = (char *)view.data + view.byte_offset;
    data += (p->layout.residue + k_alignment - (uintptr_t)data % k_alignment) % k_alignment;
    const ebb_status status = ebb_reload_into(p->place->runtime, p->activation, data, p->size_bytes, consumer);
    if (status != EBB_OK) {
        Py_DECREF(bytes);
        return raise_last_error(status);
    }
    return as_tensor(h, p, data, 0, consumer, bytes);
}

/* PyTorch may have written to what it was given, as to a gradient: the second time it is given a copy. And so is a
 * backward in Python, which may do that, the first time where the same bytes are saved for others, too. Negative: with
 * an exception. */
static int needs_own_memory(Hooks *h, const Packed *p) {
    PyObject *enabled = PyObject_CallNoArgs(h->grad_enabled);
    if (enabled == NULL) {
        return -1;
    }
    const bool may_live_on = enabled == Py_True || p->record->needs_copies || p->was_lent;
    Py_DECREF(enabled);
    if (p->is_recomputed || may_live_on) {
        return !p->is_recomputed;
    }
    if (!is_shared(&h->storages, p->storage)) {
        return false;
    }
    PyObject *may_write = PyObject_CallMethodNoArgs(h->other, g_names.may_write);
    const int answer = may_write == NULL ? -1 : may_write == Py_True;
    Py_XDECREF(may_write);
    return answer;
}

/* Copying freed nothing where somebody else holds the source. */
static void note_holders(Hooks *h, Packed *p) {
    if (p->source == NULL && is_held_elsewhere(&h->storages, p->storage)) {
        p->record->is_held = true;
        ++p->record->held_count;
        p->record->held_bytes += p->size_bytes;
        p->place->held_bytes += p->size_bytes;
    }
}

/* A thread that computes itself has no stream to wait for it. Takes the tensor, which may be null. */
static PyObject *arrived(const Packed *p, PyObject *tensor) {
    if (tensor != NULL && p->place->calling_thread && !wait_for(p->place, p->activation)) {
        Py_DECREF(tensor);
        return NULL;
    }
    return tensor;
}

/* The source is still there: it is handed out as it is, with its version and its holders, so that who writes to it, or
 * takes it for a gradient, is seen as without us. Its own references keep it from now on. */
static PyObject *hand_out_source(const Packed *p, ebb_claim claim, ebb_stream consumer) {
    PyObject *const tensor = Py_NewRef(p->source->tensor);
    const ebb_status status = ebb_return(p->place->runtime, claim, consumer);
    if (status != EBB_OK) {
        Py_DECREF(tensor);
        return raise_last_error(status);
    }
    return p->place->verify ? arrived(p, tensor) : tensor; /* a thread has nothing else to wait for */
}

static PyObject *reload(Hooks *h, Packed *p) {
    ebb_stream consumer = 0;
    if (p->place->runtime == NULL) {
        PyErr_Format(PyExc_RuntimeError, "ebb: %R cannot come back: its runtime was closed", p->name);
        return NULL;
    }
    if (!current_stream(p->place, h->table, &consumer)) {
        return NULL;
    }
    const int own_memory = needs_own_memory(h, p);
    if (own_memory < 0) {
        return NULL;
    }
    note_holders(h, p);
    ebb_reload_info info = {.struct_size = sizeof info};
    const ebb_status status = own_memory ? EBB_NO_SLOT : ebb_reload(p->place->runtime, p->activation, consumer, &info);
    switch (status) {
        case EBB_OK:
            return p->source != NULL && info.data == p->data
                       ? hand_out_source(p, info.claim, consumer)
                       : arrived(p, as_tensor(h, p, info.data, info.claim, consumer, NULL));
        case EBB_NO_SLOT:
            return arrived(p, reload_copy(h, p, consumer));
        case EBB_RECOMPUTE:
            return PyObject_CallMethod(h->other, "recompute", "O", p);
        default:
            return raise_last_error(status);
    }
}

PyObject *hooks_unpack(Hooks *h, PyObject *stand_in) {
    if (Py_TYPE(stand_in) != &g_packed_type) {
        return PyObject_CallMethod(h->other, "unpack", "O", stand_in);
    }
    Packed *p = (Packed *)stand_in;
    uint64_t now = p->version;
    if (p->tensor != NULL || p->source != NULL) {
        PyObject *held = p->tensor != NULL ? p->tensor : p->source->tensor;
        if (p->version != UINT64_MAX && !read_number(held, g_names.version, &now)) {
            return NULL;
        }
    } else if (p->changed_to != 0) {
        now = p->changed_to;
    }
    if (now != p->version) {
        ++h->changed_count;
        return PyObject_CallMethod(h->other, "changed", "OK", p, (unsigned long long)now);
    }
    if (p->tensor != NULL) {
        return Py_NewRef(p->tensor);
    }
    ++p->place->busy;
    PyObject *tensor = reload(h, p);
    --p->place->busy;
    return tensor;
}
