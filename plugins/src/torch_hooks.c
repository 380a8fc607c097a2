/* What PyTorch calls at every tensor that it saves for backward (pack) and at every one that it takes back (unpack).
 * Here is only what must be quick: the usual tensor, on a device that is known. Everything else is asked of `other`, an
 * object of Python.
 *
 * All of it runs under the interpreter's lock, which is let go only while a thread blocks for a copy. Deleters of
 * sources come from inside calls of Ebb, which may be such a blocking one: they take the lock themselves. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>

#include "dlpack_table.h"
#include "ebb/ebb.h"

enum {
    k_most_places = 16,
    k_name_bytes = 256,
    k_most_depth = 64,
    k_most_dimensions = 16,
    k_most_inputs = 64,
    k_deepest_output = 4,
    k_alignment = 512,
    k_cached_names = 256,
    k_wait_bytes = 4 << 20
};

static struct {
    PyObject *grad_fn, *version, *detach, *untyped_storage, *cdata, *weak_ref, *free_weak_ref, *expired, *is_conj,
        *is_neg, *may_write;
} g_names;

/* ------------------------------------------------------------------------------------------------------ types -- */

/* A storage that activations of ours are, or were, in. While it is known its address is not another's: their sources
 * hold it, and from when one of them was given up, a weak reference. */
struct known_storage {
    uintptr_t address;
    uint64_t id;
    uint64_t users, sources; /* activations in it, and those of them whose source is held */
    PyObject *type;          /* of the storage, whose function frees the weak reference; null: none is held yet */
    PyObject *handle;        /* of the weak reference */
};

struct device_place {
    struct dl_device device;
    ebb_runtime *runtime; /* null: closed */
    bool calling_thread;
    bool verify;
    atomic_long lent;        /* reloads in its slots that PyTorch has not freed */
    long busy;               /* calls of the runtime under way: they may let others run */
    uint64_t unwaited_bytes; /* moved since sources that were given up were waited for */
    uint64_t held_bytes;     /* copied, and not freed: somebody else held them */
};

/* What is known of all activations of a name. */
struct name_record {
    atomic_long lent;  /* reloads in slots that PyTorch has not freed */
    bool needs_copies; /* one was still held when the step ended: its reloads go to memory of PyTorch's own */
    bool is_held;      /* someone else held one whose source was given up: copying frees nothing */
    uint64_t held_count, held_bytes;
};

struct cached_name {
    PyObject *scope, *producer_type, *name;
};

typedef struct {
    PyObject_HEAD PyObject *tensor_type, *parameter_type;
    PyObject *other; /* see docs of Hooks */
    PyObject *current_graph_task;
    PyObject *grad_enabled;
    PyObject *names;      /* dict: what produced a tensor -> its name */
    PyObject *records;    /* dict: name -> address of its record, which stays */
    PyObject *forwarding; /* dict: type of what produced a tensor -> whether it is a view or a cast */
    const struct dl_exchange_table *table;
    struct device_place *places[k_most_places];
    int place_count;
    uint64_t floor_bytes;
    unsigned long thread; /* whose forward passes have scopes */
    PyObject *scopes[k_most_depth];
    int depth; /* may exceed k_most_depth: those have no scope of their own */
    struct cached_name cached_names[k_cached_names];
    struct known_storage *storages; /* open addressing, a power of two */
    size_t storage_capacity, storage_count;
    uint64_t last_storage_id;
    uint64_t pass_count; /* of forward passes */
    uint64_t passed_count, moved_count, moved_bytes, changed_count;
} Hooks;

/* A source that Ebb holds until it is given up. */
struct held_source {
    PyObject *tensor;
    PyObject *storage; /* of a tensor that may be given another one meanwhile; else null */
    uint64_t version;
    struct packed *packed; /* null when that is gone */
};

/* How a tensor can be computed again: by whom, as its which saved tensor, and from what. */
struct recipe {
    PyObject *frame;
    Py_ssize_t index;
    uint64_t input_count;
    ebb_activation inputs[k_most_inputs];
};

/* How a tensor lies in the bytes that are moved. */
struct layout {
    struct dl_type type;
    int32_t dimensions;
    int64_t first_bytes; /* from the tensor's first element to the first byte that is moved: 0, or less */
    uint64_t residue;    /* of that byte's address, modulo k_alignment */
    int64_t shape[k_most_dimensions], strides[k_most_dimensions];
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

static PyTypeObject g_packed_type;

/* Ebb's last words as an exception: a runtime error, or a memory error where that is what it is. */
static PyObject *raise_last_error(ebb_status status) {
    const bool memory = status == EBB_OUT_OF_HOST_MEMORY || status == EBB_OUT_OF_DEVICE_MEMORY || status == EBB_NO_SLOT;
    PyErr_Format(memory ? PyExc_MemoryError : PyExc_RuntimeError, "ebb: %s: %s", ebb_status_name(status),
                 ebb_last_error());
    return NULL;
}

static bool read_number(PyObject *object, PyObject *attribute, uint64_t *number) {
    PyObject *value = PyObject_GetAttr(object, attribute);
    if (value == NULL) {
        return false;
    }
    *number = PyLong_AsUnsignedLongLongMask(value);
    Py_DECREF(value);
    return !PyErr_Occurred();
}

/* Around what Ebb calls of ours, with the interpreter's lock or without, perhaps while an exception is on its way. */
struct callback {
    PyGILState_STATE state;
    PyObject *type, *value, *trace;
};

static struct callback begin_callback(void) {
    struct callback c = {.state = PyGILState_Ensure()};
    PyErr_Fetch(&c.type, &c.value, &c.trace);
    return c;
}

static void end_callback(struct callback c) {
    PyErr_Restore(c.type, c.value, c.trace);
    PyGILState_Release(c.state);
}

/* --------------------------------------------------------------------------------------------------- storages -- */

static struct known_storage *find_storage(Hooks *h, uintptr_t address) {
    if (h->storage_capacity == 0) {
        return NULL;
    }
    const size_t mask = h->storage_capacity - 1;
    for (size_t i = (address >> 4U) & mask;; i = (i + 1) & mask) {
        if (h->storages[i].address == address || h->storages[i].address == 0) {
            return &h->storages[i];
        }
    }
}

static bool grow_storages(Hooks *h) {
    struct known_storage *old = h->storages;
    const size_t old_capacity = h->storage_capacity;
    const size_t capacity = old_capacity == 0 ? 256 : 2 * old_capacity;
    struct known_storage *grown = PyMem_Calloc(capacity, sizeof *grown);
    if (grown == NULL) {
        PyErr_NoMemory();
        return false;
    }
    h->storages = grown;
    h->storage_capacity = capacity;
    for (size_t i = 0; i < old_capacity; ++i) {
        if (old[i].address != 0) {
            *find_storage(h, old[i].address) = old[i];
        }
    }
    PyMem_Free(old);
    return true;
}

/* One user more of the tensor's storage, which `held` then holds, if it is not null; 0 with an exception when that
 * cannot be had. */
static uintptr_t use_storage(Hooks *h, PyObject *tensor, uint64_t *id, PyObject **held) {
    PyObject *storage = PyObject_CallMethodNoArgs(tensor, g_names.untyped_storage);
    if (storage == NULL) {
        return 0;
    }
    uint64_t address = 0;
    struct known_storage *known = NULL;
    if (!read_number(storage, g_names.cdata, &address) || address == 0 ||
        (h->storage_count * 2 >= h->storage_capacity && !grow_storages(h))) {
        goto failed;
    }
    known = find_storage(h, address);
    if (known->address == 0) {
        *known = (struct known_storage){.address = address, .id = ++h->last_storage_id};
        ++h->storage_count;
    }
    ++known->users;
    ++known->sources;
    *id = known->id;
    if (held != NULL) {
        *held = Py_NewRef(storage);
    }
    Py_DECREF(storage);
    return address;
failed:
    Py_DECREF(storage);
    if (!PyErr_Occurred()) {
        PyErr_SetString(PyExc_RuntimeError, "the tensor's storage has no address");
    }
    return 0;
}

/* Before the source in it goes, while others may still name the storage. */
static bool hold_weakly(Hooks *h, uintptr_t address, PyObject *tensor) {
    struct known_storage *known = find_storage(h, address);
    --known->sources;
    if (known->type != NULL) {
        return true;
    }
    PyObject *storage = PyObject_CallMethodNoArgs(tensor, g_names.untyped_storage);
    PyObject *handle = storage == NULL ? NULL : PyObject_CallMethodNoArgs(storage, g_names.weak_ref);
    if (handle != NULL) {
        known = find_storage(h, address); /* a call of Python's may have moved it */
        known->handle = handle;
        known->type = Py_NewRef(Py_TYPE(storage));
    }
    Py_XDECREF(storage);
    return handle != NULL;
}

/* Whether somebody else holds the storage, though all sources in it were given up. */
static bool is_held_elsewhere(Hooks *h, uintptr_t address) {
    struct known_storage *known = find_storage(h, address);
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

static void leave_storage(Hooks *h, uintptr_t address, bool with_source) {
    struct known_storage *known = address == 0 ? NULL : find_storage(h, address);
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
    const size_t mask = h->storage_capacity - 1;
    size_t gap = (size_t)(known - h->storages);
    for (size_t i = (gap + 1) & mask; h->storages[i].address != 0; i = (i + 1) & mask) {
        const size_t wanted = (h->storages[i].address >> 4U) & mask;
        if (((i - wanted) & mask) >= ((i - gap) & mask)) {
            h->storages[gap] = h->storages[i];
            gap = i;
        }
    }
    memset(&h->storages[gap], 0, sizeof h->storages[gap]);
    --h->storage_count;
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

/* ----------------------------------------------------------------------------------------------------- packed -- */

static Packed *new_packed(Hooks *h) {
    Packed *p = PyObject_New(Packed, &g_packed_type);
    if (p != NULL) {
        memset((char *)p + offsetof(Packed, hooks), 0, offsetof(Packed, layout) - offsetof(Packed, hooks));
        p->hooks = (Hooks *)Py_NewRef(h);
    }
    return p;
}

static bool release(Packed *p) {
    ++p->place->busy;
    const ebb_status status = ebb_release(p->place->runtime, p->activation);
    --p->place->busy;
    return status == EBB_OK;
}

static void free_source(struct held_source *source) {
    Py_XDECREF(source->tensor);
    Py_XDECREF(source->storage);
    PyMem_Free(source);
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
    leave_storage(p->hooks, p->storage, with_source);
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

static PyTypeObject g_packed_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "ebb._torch_hooks.Packed",
    .tp_basicsize = sizeof(Packed),
    .tp_dealloc = (destructor)packed_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_members = g_packed_members,
    .tp_doc = "What PyTorch keeps in place of a saved tensor.",
};

/* Called by Ebb when the source's memory may be reused. A version that is another by now is remembered: the bytes may
 * be those of before or of after. */
static void give_up_source(void *context) {
    struct held_source *source = context;
    const struct callback callback = begin_callback();
    if (source->packed != NULL) {
        uint64_t version = 0;
        if (!read_number(source->tensor, g_names.version, &version)) {
            PyErr_WriteUnraisable(source->tensor);
        } else if (version != source->version) {
            source->packed->changed_to = version;
        }
        if (!hold_weakly(source->packed->hooks, source->packed->storage, source->tensor)) {
            PyErr_WriteUnraisable(source->tensor);
        }
        source->packed->source = NULL;
    }
    free_source(source);
    end_callback(callback);
}

/* ------------------------------------------------------------------------------------------------------- pack -- */

/* The bytes from its lowest element to its highest, and how it lies in them. False: it has too many dimensions, is of a
 * type that is no whole number of bytes, or leaves more than half of those bytes out. */
static bool read_layout(const struct dl_tensor *t, struct layout *l, uint64_t *size_bytes) {
    const int64_t bits = (int64_t)t->type.bits * t->type.lanes;
    if (t->dimensions > k_most_dimensions || bits % 8 != 0) {
        return false;
    }
    int64_t low = 0;
    int64_t high = 0;
    int64_t elements = 1;
    for (int32_t d = 0; d < t->dimensions; ++d) {
        l->shape[d] = t->shape[d];
        l->strides[d] = t->strides[d];
        elements *= t->shape[d];
        if (t->shape[d] > 0) {
            const int64_t reach = (t->shape[d] - 1) * t->strides[d];
            *(reach < 0 ? &low : &high) += reach;
        }
    }
    const int64_t spanned = elements == 0 ? 0 : high - low + 1;
    l->type = t->type;
    l->dimensions = t->dimensions;
    l->first_bytes = low * (bits / 8);
    l->residue = (uintptr_t)((char *)t->data + t->byte_offset + l->first_bytes) % k_alignment;
    *size_bytes = (uint64_t)(spanned * (bits / 8));
    return spanned <= 2 * elements;
}

static struct device_place *find_place(const Hooks *h, struct dl_device device) {
    for (int i = 0; i < h->place_count; ++i) {
        if (h->places[i]->device.type == device.type && h->places[i]->device.id == device.id) {
            return h->places[i];
        }
    }
    return NULL;
}

static bool current_stream(const Hooks *h, const struct device_place *place, ebb_stream *stream) {
    *stream = EBB_STREAM_CALLING_THREAD;
    if (place->calling_thread) {
        return true;
    }
    void *raw = NULL;
    if (h->table->current_stream(place->device.type, place->device.id, &raw) != 0) {
        if (!PyErr_Occurred()) {
            PyErr_Format(PyExc_RuntimeError, "ebb: PyTorch tells no current stream of device %d",
                         (int)place->device.id);
        }
        return false;
    }
    *stream = raw == NULL ? EBB_STREAM_LEGACY : (ebb_stream)(uintptr_t)raw;
    return true;
}

/* What an operation made may be saved by that very operation: it must not hold the node that holds it, so it is held
 * detached. What none made is held as it is: PyTorch hands it on as it is, and looks at who else has it before it takes
 * it for a gradient. */
static PyObject *held_form(PyObject *tensor, bool is_leaf) {
    return is_leaf ? Py_NewRef(tensor) : PyObject_CallMethodNoArgs(tensor, g_names.detach);
}

/* Passed through: kept, and its version looked at when it is taken back. */
static PyObject *pass(Hooks *h, PyObject *tensor, bool is_leaf) {
    Packed *p = new_packed(h);
    if (p == NULL) {
        return NULL;
    }
    if (!read_number(tensor, g_names.version, &p->version)) {
        PyErr_Clear(); /* of inference mode: there is none, and it cannot be changed */
        p->version = UINT64_MAX;
    }
    p->tensor = held_form(tensor, is_leaf);
    if (p->tensor == NULL) {
        Py_DECREF(p);
        return NULL;
    }
    ++h->passed_count;
    return (PyObject *)p;
}

/* Whether `producer` is one of those that hand on another tensor's elements: of a parameter's, nothing is moved. */
static int hands_on(Hooks *h, PyObject *producer) {
    PyObject *type = (PyObject *)Py_TYPE(producer);
    PyObject *known = PyDict_GetItemWithError(h->forwarding, type);
    if (known == NULL) {
        if (PyErr_Occurred()) {
            return -1;
        }
        PyObject *answer = PyObject_CallMethod(h->other, "hands_on", "O", type);
        if (answer == NULL || PyDict_SetItem(h->forwarding, type, answer) != 0) {
            Py_XDECREF(answer);
            return -1;
        }
        known = answer;
        Py_DECREF(answer);
    }
    return known == Py_True ? 1 : 0;
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

/* That of the module which returned it, else, of a producer "MulBackward0" in scope "decoder.up", "decoder.up.Mul". */
static PyObject *name_of(Hooks *h, PyObject *producer) {
    PyTypeObject *const type = producer == Py_None ? NULL : Py_TYPE(producer);
    if (type != NULL) {
        PyObject *name = PyDict_GetItemWithError(h->names, producer);
        if (name != NULL || PyErr_Occurred()) {
            return Py_XNewRef(name);
        }
    }
    const int innermost = h->depth > k_most_depth ? k_most_depth : h->depth;
    PyObject *const scope = innermost == 0 ? NULL : h->scopes[innermost - 1];
    const uintptr_t hash = ((uintptr_t)scope >> 4U) * 31 + ((uintptr_t)type >> 4U);
    struct cached_name *cached = &h->cached_names[(hash ^ (hash >> 8U)) % k_cached_names];
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

/* Null with an exception. */
static struct name_record *record_of(Hooks *h, PyObject *name) {
    PyObject *known = PyDict_GetItemWithError(h->records, name);
    if (known != NULL) {
        return PyLong_AsVoidPtr(known);
    }
    struct name_record *record = PyErr_Occurred() ? NULL : calloc(1, sizeof *record);
    PyObject *address = record == NULL ? NULL : PyLong_FromVoidPtr(record);
    if (address == NULL || PyDict_SetItem(h->records, name, address) != 0) {
        Py_XDECREF(address);
        free(record);
        if (!PyErr_Occurred()) {
            PyErr_NoMemory();
        }
        return NULL;
    }
    Py_DECREF(address);
    return record;
}

/* Blocks for the bytes of that activation; for the copies of all sources that were given up where it is 0. */
static bool wait_for(struct device_place *place, ebb_activation activation) {
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

/* `data` is the tensor's first element; `size_bytes` are moved from where the layout begins. */
static PyObject *move(Hooks *h, struct device_place *place, PyObject *tensor, PyObject *producer, uint64_t version,
                      void *data, uint64_t size_bytes, const struct layout *layout, const struct recipe *recipe) {
    ebb_stream stream = 0;
    Packed *p = new_packed(h);
    struct held_source *source = PyMem_Calloc(1, sizeof *source);
    uint64_t id = 0;
    ebb_offload_info info = {.struct_size = sizeof info};
    if (p == NULL || source == NULL) {
        PyMem_Free(source);
        Py_XDECREF(p);
        return PyErr_NoMemory();
    }
    const bool is_leaf = producer == Py_None;
    source->tensor = held_form(tensor, is_leaf);
    source->packed = p;
    p->place = place;
    p->version = version;
    p->size_bytes = size_bytes;
    p->layout = *layout;
    p->data = (const char *)data + layout->first_bytes;
    if (source->tensor == NULL || (p->name = name_of(h, producer)) == NULL ||
        (p->record = record_of(h, p->name)) == NULL ||
        (p->storage = use_storage(h, tensor, &id, is_leaf ? &source->storage : NULL)) == 0 ||
        !current_stream(h, place, &stream)) {
        goto failed;
    }
    source->version = p->version;
    ebb_offload_args args = {
        .struct_size = sizeof args,
        .name = PyUnicode_AsUTF8(p->name),
        .data = (void *)p->data,
        .size_bytes = size_bytes,
        .producers = &stream,
        .producer_count = 1,
        .deleter = give_up_source,
        .deleter_context = source,
        .storage_id = id,
        /* What no operation made may be filled anew without a version that tells, as a buffer for input between passes.
         */
        .storage_version = is_leaf ? (h->pass_count << 32U) + p->version : p->version,
        .placement = p->record->is_held ? EBB_PLACE_KEEP : EBB_PLACE_BY_POLICY,
    };
    if (recipe != NULL) {
        args.flags = EBB_OFFLOAD_CAN_RECOMPUTE;
        args.recompute_from = recipe->inputs;
        args.recompute_from_count = recipe->input_count;
    }
    if (args.name == NULL) {
        goto failed;
    }
    p->source = source;
    ebb_status status = ebb_offload(place->runtime, &args, &info);
    if (status != EBB_OK) {
        p->source = NULL;
        raise_last_error(status);
        goto failed;
    }
    p->activation = info.activation;
    if (recipe != NULL) {
        p->frame = Py_NewRef(recipe->frame);
        p->index = recipe->index;
    }
    p->is_recomputed = info.placement == EBB_PLACE_RECOMPUTE;
    ++h->moved_count;
    h->moved_bytes += size_bytes;
    place->unwaited_bytes += size_bytes;
    if (place->calling_thread && place->unwaited_bytes >= k_wait_bytes) {
        /* Nothing else would give the memory of sources back that were given up. */
        place->unwaited_bytes = 0;
        if (!wait_for(place, 0)) {
            Py_DECREF(p);
            return NULL;
        }
    }
    return (PyObject *)p;
failed:
    free_source(source);
    p->source = NULL;
    leave_storage(h, p->storage, true);
    p->storage = 0;
    Py_DECREF(p);
    return NULL;
}

static PyObject *ask_other(Hooks *h, const char *method, PyObject *tensor) {
    return PyObject_CallMethod(h->other, method, "O", tensor);
}

/* Also where the answer is an exception. */
static bool is_true(PyObject *tensor, PyObject *method) {
    PyObject *answer = PyObject_CallMethodNoArgs(tensor, method);
    const bool is = answer != Py_False;
    Py_XDECREF(answer);
    return is;
}

/* A parameter, a buffer, or what views and casts made of one. Negative: with an exception. */
static int never_moves(Hooks *h, PyObject *tensor, PyObject *producer, const void *data, uint64_t size_bytes) {
    PyObject *answer = NULL;
    if (producer == Py_None) {
        answer = PyObject_CallMethod(h->other, "stays", "OKK", tensor, (unsigned long long)(uintptr_t)data,
                                     (unsigned long long)size_bytes);
    } else {
        const int handed_on = hands_on(h, producer);
        if (handed_on != 1) {
            return handed_on;
        }
        answer = ask_other(h, "is_of_parameter", producer);
    }
    const int stays = answer == NULL ? -1 : answer == Py_True;
    Py_XDECREF(answer);
    return stays;
}

/* What lies as `layout` says from `view` on: moved, or passed through where it stays. */
static PyObject *pack_at(Hooks *h, struct device_place *place, PyObject *tensor, PyObject *producer,
                         const struct dl_tensor *view, uint64_t size_bytes, const struct layout *layout,
                         const struct recipe *recipe) {
    const bool is_leaf = producer == Py_None;
    PyObject *task = PyObject_CallNoArgs(h->current_graph_task);
    if (task == NULL) {
        return NULL;
    }
    const bool in_backward = PyLong_AsLong(task) != -1;
    Py_DECREF(task);
    if (in_backward || place->runtime == NULL) {
        return pass(h, tensor, is_leaf);
    }
    const int stays = never_moves(h, tensor, producer, view->data, size_bytes);
    if (stays != 0) {
        return stays < 0 ? NULL : pass(h, tensor, is_leaf);
    }
    uint64_t version = 0;
    if (!read_number(tensor, g_names.version, &version)) {
        PyErr_Clear(); /* of inference mode */
        return pass(h, tensor, is_leaf);
    }
    return move(h, place, tensor, producer, version, (char *)view->data + view->byte_offset, size_bytes, layout,
                recipe);
}

/* `recipe`: null where it cannot be computed again. */
static PyObject *pack(Hooks *h, PyObject *tensor, const struct recipe *recipe) {
    if ((PyObject *)Py_TYPE(tensor) != h->tensor_type) {
        if ((PyObject *)Py_TYPE(tensor) == h->parameter_type) {
            return pass(h, tensor, true);
        }
        return ask_other(h, "pack_subclass", tensor);
    }
    struct dl_tensor view;
    struct layout layout;
    uint64_t size_bytes = 0;
    if (h->table->view_object(tensor, &view) != 0) {
        PyErr_Clear(); /* sparse, quantised, conjugate, on a device of no memory */
        return ask_other(h, "pack_odd", tensor);
    }
    const bool readable = view.data != NULL && read_layout(&view, &layout, &size_bytes);
    PyObject *producer = PyObject_GetAttr(tensor, g_names.grad_fn);
    if (producer == NULL) {
        return NULL;
    }
    PyObject *packed = NULL;
    if (!readable || size_bytes < h->floor_bytes) {
        packed = pass(h, tensor, producer == Py_None);
        goto done;
    }
    /* Bits of the tensor that its bytes do not have. */
    if (is_true(tensor, g_names.is_neg) || is_true(tensor, g_names.is_conj)) {
        packed = PyErr_Occurred() ? NULL : ask_other(h, "pack_odd", tensor);
        goto done;
    }
    struct device_place *place = find_place(h, view.device);
    if (place == NULL) {
        packed = ask_other(h, "pack_elsewhere", tensor);
        goto done;
    }
    ++place->busy; /* from before its runtime is looked at: what is asked meanwhile lets others run, who may close it */
    packed = pack_at(h, place, tensor, producer, &view, size_bytes, &layout, recipe);
    --place->busy;
done:
    Py_DECREF(producer);
    return packed;
}

static PyObject *hooks_pack(Hooks *h, PyObject *tensor) {
    return pack(h, tensor, NULL);
}

/* ------------------------------------------------------------------------------------------------------ unpack -- */

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

/* Of what Ebb may decide to have computed again: frame, its which saved tensor, the tensor, stand-ins of what it is
 * computed from. */
static PyObject *hooks_pack_in_frame(Hooks *h, PyObject *const *args, Py_ssize_t count) {
    struct recipe recipe = {0};
    if (count != 4 || !PyTuple_Check(args[3])) {
        PyErr_SetString(PyExc_TypeError, "pack_in_frame(frame, index, tensor, inputs)");
        return NULL;
    }
    recipe.frame = args[0];
    recipe.index = PyLong_AsSsize_t(args[1]);
    if (recipe.index == -1 && PyErr_Occurred()) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args[3]); ++i) {
        PyObject *input = PyTuple_GET_ITEM(args[3], i);
        if (Py_TYPE(input) == &g_packed_type && ((Packed *)input)->activation != 0) {
            if (recipe.input_count == k_most_inputs) {
                return pack(h, args[2], NULL); /* from too many to name */
            }
            recipe.inputs[recipe.input_count++] = ((Packed *)input)->activation;
        }
    }
    return pack(h, args[2], &recipe);
}

static PyObject *reload(Hooks *h, Packed *p) {
    ebb_runtime *const runtime = p->place->runtime;
    ebb_stream consumer = 0;
    if (runtime == NULL) {
        PyErr_Format(PyExc_RuntimeError, "ebb: %R cannot come back: its runtime was closed", p->name);
        return NULL;
    }
    if (!current_stream(h, p->place, &consumer)) {
        return NULL;
    }
    PyObject *enabled = PyObject_CallNoArgs(h->grad_enabled);
    if (enabled == NULL) {
        return NULL;
    }
    /* PyTorch may have written to what it was given, as to a gradient: the second time it is given a copy. */
    bool may_live_on = !p->is_recomputed && (enabled == Py_True || p->record->needs_copies || p->was_lent);
    Py_DECREF(enabled);
    /* And so is a backward in Python, which may do that, the first time where the same bytes are saved for others, too.
     */
    if (!may_live_on && !p->is_recomputed && find_storage(h, p->storage)->users > 1) {
        PyObject *may_write = PyObject_CallMethodNoArgs(h->other, g_names.may_write);
        if (may_write == NULL) {
            return NULL;
        }
        may_live_on = may_write == Py_True;
        Py_DECREF(may_write);
    }
    if (p->source == NULL && is_held_elsewhere(h, p->storage)) {
        p->record->is_held = true;
        ++p->record->held_count;
        p->record->held_bytes += p->size_bytes;
        p->place->held_bytes += p->size_bytes;
    }
    ebb_reload_info info = {.struct_size = sizeof info};
    const ebb_status status = may_live_on ? EBB_NO_SLOT : ebb_reload(runtime, p->activation, consumer, &info);
    if (status == EBB_RECOMPUTE) {
        return PyObject_CallMethod(h->other, "recompute", "O", p);
    }
    if (status != EBB_OK && status != EBB_NO_SLOT) {
        return raise_last_error(status);
    }
    /* The source is still there: it is handed out as it is, with its version and its holders, so that who writes to it,
     * or takes it for a gradient, is seen as without us. Its own references keep it from now on. */
    const bool is_source = status == EBB_OK && p->source != NULL && info.data == p->data;
    PyObject *const source = is_source ? Py_NewRef(p->source->tensor) : NULL;
    if (is_source) {
        const ebb_status returned = ebb_return(runtime, info.claim, consumer);
        if (returned != EBB_OK) {
            Py_DECREF(source);
            return raise_last_error(returned);
        }
        if (!p->place->verify) {
            return source; /* a thread has nothing to wait for */
        }
    }
    PyObject *tensor = is_source          ? source
                       : status == EBB_OK ? as_tensor(h, p, info.data, info.claim, consumer, NULL)
                                          : reload_copy(h, p, consumer);
    if (tensor != NULL && p->place->calling_thread && !wait_for(p->place, p->activation)) {
        Py_DECREF(tensor);
        return NULL;
    }
    return tensor;
}

static PyObject *hooks_unpack(Hooks *h, PyObject *object) {
    if (Py_TYPE(object) != &g_packed_type) {
        return ask_other(h, "unpack", object);
    }
    Packed *p = (Packed *)object;
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

/* ------------------------------------------------------------------------------------------------------ scopes -- */

/* Before a module's forward: module, args. */
static PyObject *hooks_enter(Hooks *h, PyObject *const *args, Py_ssize_t count) {
    if (count < 1) {
        PyErr_SetString(PyExc_TypeError, "enter(module, args)");
        return NULL;
    }
    if (PyThread_get_thread_ident() != h->thread) {
        Py_RETURN_NONE;
    }
    PyObject *name = PyObject_CallMethod(h->other, "name_of_module", "Oi", args[0], h->depth);
    if (name == NULL) {
        return NULL;
    }
    if (h->depth < k_most_depth) {
        h->scopes[h->depth] = name;
    } else {
        Py_DECREF(name);
    }
    ++h->depth;
    Py_RETURN_NONE;
}

/* Outputs that lie deeper in each other than `deepest` have no names. */
static bool name_output(Hooks *h, PyObject *output, PyObject *name, int deepest) {
    if (deepest == 0) {
        return true;
    }
    if ((PyObject *)Py_TYPE(output) == h->tensor_type) {
        PyObject *producer = PyObject_GetAttr(output, g_names.grad_fn);
        const bool fine =
            producer != NULL && (producer == Py_None || PyDict_SetDefault(h->names, producer, name) != NULL);
        Py_XDECREF(producer);
        return fine;
    }
    if (PyTuple_Check(output) || PyList_Check(output)) {
        const Py_ssize_t size = PySequence_Fast_GET_SIZE(output);
        for (Py_ssize_t i = 0; i < size; ++i) {
            if (!name_output(h, PySequence_Fast_GET_ITEM(output, i), name, deepest - 1)) {
                return false;
            }
        }
    } else if (PyDict_Check(output)) {
        PyObject *key, *value;
        Py_ssize_t at = 0;
        while (PyDict_Next(output, &at, &key, &value)) {
            if (!name_output(h, value, name, deepest - 1)) {
                return false;
            }
        }
    }
    return true;
}

/* After it, also where it raised: module, args, output (None then). */
static PyObject *hooks_leave(Hooks *h, PyObject *const *args, Py_ssize_t count) {
    if (count < 3) {
        PyErr_SetString(PyExc_TypeError, "leave(module, args, output)");
        return NULL;
    }
    if (PyThread_get_thread_ident() != h->thread || h->depth == 0) {
        Py_RETURN_NONE;
    }
    --h->depth;
    if (h->depth < k_most_depth) {
        PyObject *name = h->scopes[h->depth];
        h->scopes[h->depth] = NULL;
        const bool fine = PyUnicode_GET_LENGTH(name) == 0 || name_output(h, args[2], name, k_deepest_output);
        Py_DECREF(name);
        if (!fine) {
            return NULL;
        }
    }
    Py_RETURN_NONE;
}

/* A forward pass begins or is over: scopes of one that was left by an exception are gone, and nodes are let go. */
static PyObject *hooks_reset(Hooks *h, PyObject *Py_UNUSED(unused)) {
    while (h->depth > 0) {
        --h->depth;
        if (h->depth < k_most_depth) {
            Py_CLEAR(h->scopes[h->depth]);
        }
    }
    h->thread = PyThread_get_thread_ident();
    ++h->pass_count;
    PyDict_Clear(h->names);
    Py_RETURN_NONE;
}

/* ------------------------------------------------------------------------------------------------------- hooks -- */

static PyObject *hooks_add_place(Hooks *h, PyObject *args) {
    int type = 0;
    int id = 0;
    unsigned long long runtime = 0;
    int calling_thread = 0;
    int verify = 0;
    if (!PyArg_ParseTuple(args, "iiKpp", &type, &id, &runtime, &calling_thread, &verify)) {
        return NULL;
    }
    struct device_place *place = h->place_count == k_most_places ? NULL : PyMem_RawCalloc(1, sizeof *place);
    if (place == NULL) {
        PyErr_Format(PyExc_RuntimeError, "ebb: more than %d devices in one process", (int)k_most_places);
        return NULL;
    }
    place->device = (struct dl_device){type, id};
    place->runtime = (ebb_runtime *)(uintptr_t)runtime;
    place->calling_thread = calling_thread != 0;
    place->verify = verify != 0;
    h->places[h->place_count++] = place; /* for good: tensors that are still out name it */
    Py_RETURN_NONE;
}

/* The runtimes are about to be closed. One that PyTorch still has memory of, or that another thread is calling, lives
 * on: for the memory and that call alone. */
static PyObject *hooks_forget_places(Hooks *h, PyObject *Py_UNUSED(unused)) {
    PyObject *over = PyList_New(0);
    for (int i = 0; i < h->place_count; ++i) {
        struct device_place *place = h->places[i];
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
    h->place_count = 0;
    return over;
}

/* In a child process: the threads of the runtimes are not there. */
static PyObject *hooks_lose_places(Hooks *h, PyObject *Py_UNUSED(unused)) {
    for (int i = 0; i < h->place_count; ++i) {
        h->places[i]->runtime = NULL;
    }
    h->place_count = 0;
    Py_RETURN_NONE;
}

/* What of the step's reloads PyTorch still holds will be held in the next one, too. */
static PyObject *hooks_end_step(Hooks *h, PyObject *Py_UNUSED(unused)) {
    PyObject *name, *address;
    Py_ssize_t at = 0;
    while (PyDict_Next(h->records, &at, &name, &address)) {
        struct name_record *record = PyLong_AsVoidPtr(address);
        record->needs_copies = record->needs_copies || atomic_load(&record->lent) != 0;
    }
    Py_RETURN_NONE;
}

/* [(name, count, bytes)] of what was copied and not freed, since somebody else held it. */
static PyObject *hooks_held_elsewhere(Hooks *h, PyObject *Py_UNUSED(unused)) {
    PyObject *list = PyList_New(0);
    PyObject *name, *address;
    Py_ssize_t at = 0;
    while (list != NULL && PyDict_Next(h->records, &at, &name, &address)) {
        const struct name_record *record = PyLong_AsVoidPtr(address);
        if (record->held_count == 0) {
            continue;
        }
        PyObject *row = Py_BuildValue("(OKK)", name, (unsigned long long)record->held_count,
                                      (unsigned long long)record->held_bytes);
        if (row == NULL || PyList_Append(list, row) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(row);
    }
    return list;
}

static PyObject *hooks_held_bytes(Hooks *h, PyObject *args) {
    struct dl_device device;
    if (!PyArg_ParseTuple(args, "ii", &device.type, &device.id)) {
        return NULL;
    }
    const struct device_place *place = find_place(h, device);
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
    h->names = PyDict_New();
    h->records = PyDict_New();
    h->forwarding = PyDict_New();
    h->thread = PyThread_get_thread_ident();
    return h->names != NULL && h->records != NULL && h->forwarding != NULL ? 0 : -1;
}

static int hooks_traverse(Hooks *h, visitproc visit, void *arg) {
    Py_VISIT(h->other);
    Py_VISIT(h->names);
    Py_VISIT(h->forwarding);
    return 0;
}

static int hooks_clear(Hooks *h) {
    Py_CLEAR(h->other);
    Py_CLEAR(h->names);
    Py_CLEAR(h->forwarding);
    return 0;
}

static void hooks_dealloc(Hooks *h) {
    PyObject_GC_UnTrack(h);
    hooks_clear(h);
    for (int i = 0; i < k_cached_names; ++i) {
        Py_XDECREF(h->cached_names[i].scope);
        Py_XDECREF(h->cached_names[i].producer_type);
        Py_XDECREF(h->cached_names[i].name);
    }
    Py_XDECREF(h->tensor_type);
    Py_XDECREF(h->parameter_type);
    Py_XDECREF(h->current_graph_task);
    Py_XDECREF(h->grad_enabled);
    Py_XDECREF(h->records); /* the records stay: tensors that are still out name them */
    PyMem_Free(h->storages);
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

static PyTypeObject g_hooks_type = {
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

/* --------------------------------------------------------------------------------------------------- allocators -- */

/* Memory for staging that PyTorch's own allocator gives, so that its statistics count it. Called inside calls of ours,
 * with the interpreter's lock or without. */
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

static PyTypeObject g_allocator_type = {
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

static struct PyModuleDef g_module = {PyModuleDef_HEAD_INIT, .m_name = "ebb._torch_hooks",
                                      .m_doc = "Hooks for PyTorch's saved tensors.", .m_size = -1};

PyMODINIT_FUNC PyInit__torch_hooks(void) {
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
            return NULL;
        }
    }
    if (PyType_Ready(&g_packed_type) != 0 || PyType_Ready(&g_hooks_type) != 0 || PyType_Ready(&g_allocator_type) != 0) {
        return NULL;
    }
    PyObject *module = PyModule_Create(&g_module);
    if (module == NULL || PyModule_AddObjectRef(module, "Hooks", (PyObject *)&g_hooks_type) != 0 ||
        PyModule_AddObjectRef(module, "Packed", (PyObject *)&g_packed_type) != 0 ||
        PyModule_AddObjectRef(module, "Allocator", (PyObject *)&g_allocator_type) != 0) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
