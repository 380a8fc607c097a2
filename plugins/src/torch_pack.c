#include "torch_pack.h"

#include <stdbool.h>

#include "torch_packed.h"
#include "torch_python.h"
#include "torch_records.h"

enum { k_most_inputs = 64, k_wait_bytes = 4 << 20 };

/* How a tensor can be computed again: by whom, as its which saved tensor, and from what. */
struct recipe {
    PyObject *frame;
    Py_ssize_t index;
    uint64_t input_count;
    ebb_activation inputs[k_most_inputs];
};

/* A tensor that is saved, as it comes to be known. */
struct saved {
    PyObject *tensor, *producer;
    const struct recipe *recipe; /* null: it cannot be computed again */
    struct dl_tensor view;
    struct layout layout;
    uint64_t size_bytes; /* that are moved, from where the layout begins */
    uint64_t version;
};

/* No operation made it. */
static bool is_leaf(const struct saved *s) {
    return s->producer == Py_None;
}

/* Passed through: kept, and its version looked at when it is taken back. */
static PyObject *pass(Hooks *h, PyObject *tensor, bool leaf) {
    Packed *p = new_packed(h);
    if (p == NULL) {
        return NULL;
    }
    if (!read_number(tensor, g_names.version, &p->version)) {
        PyErr_Clear(); /* of inference mode: there is none, and it cannot be changed */
        p->version = UINT64_MAX;
    }
    p->tensor = held_form(tensor, leaf);
    if (p->tensor == NULL) {
        Py_DECREF(p);
        return NULL;
    }
    ++h->passed_count;
    return (PyObject *)p;
}

static PyObject *ask_other(Hooks *h, const char *method, PyObject *tensor) {
    return PyObject_CallMethod(h->other, method, "O", tensor);
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

/* A parameter, a buffer, or what views and casts made of one. Negative: with an exception. */
static int never_moves(Hooks *h, const struct saved *s) {
    PyObject *answer = NULL;
    if (is_leaf(s)) {
        answer = PyObject_CallMethod(h->other, "stays", "OKK", s->tensor, (unsigned long long)(uintptr_t)s->view.data,
                                     (unsigned long long)s->size_bytes);
    } else {
        const int handed_on = hands_on(h, s->producer);
        if (handed_on != 1) {
            return handed_on;
        }
        answer = ask_other(h, "is_of_parameter", s->producer);
    }
    const int stays = answer == NULL ? -1 : answer == Py_True;
    Py_XDECREF(answer);
    return stays;
}

/* What is known of it before Ebb has it; false with an exception. */
static bool describe(Packed *p, const struct saved *s, uint64_t *storage_id) {
    Hooks *h = p->hooks;
    p->size_bytes = s->size_bytes;
    p->layout = s->layout;
    p->data = (const char *)s->view.data + s->view.byte_offset + s->layout.first_bytes;
    p->name = name_of(&h->names, s->producer);
    p->record = p->name == NULL ? NULL : record_of(h->records, p->name);
    if (p->record == NULL) {
        return false;
    }
    p->storage = use_storage(&h->storages, s->tensor, storage_id, &p->source->storage);
    return p->storage != 0;
}

/* False with an exception. */
static bool offload(Packed *p, const struct saved *s, uint64_t storage_id) {
    const Hooks *h = p->hooks;
    ebb_stream stream = 0;
    ebb_offload_info info = {.struct_size = sizeof info};
    ebb_offload_args args = {
        .struct_size = sizeof args,
        .name = PyUnicode_AsUTF8(p->name),
        .data = (void *)p->data,
        .size_bytes = p->size_bytes,
        .producers = &stream,
        .producer_count = 1,
        .deleter = give_up_source,
        .deleter_context = p->source,
        .storage_id = storage_id,
        /* What no operation made may be filled anew without a version that tells, as a buffer for input between passes.
         */
        .storage_version = is_leaf(s) ? (h->pass_count << 32U) + p->version : p->version,
        .placement = p->record->is_held ? EBB_PLACE_KEEP : EBB_PLACE_BY_POLICY,
    };
    if (s->recipe != NULL) {
        args.flags = EBB_OFFLOAD_CAN_RECOMPUTE;
        args.recompute_from = s->recipe->inputs;
        args.recompute_from_count = s->recipe->input_count;
        p->frame = Py_NewRef(s->recipe->frame);
        p->index = s->recipe->index;
    }
    if (args.name == NULL || !current_stream(p->place, h->table, &stream)) {
        return false;
    }
    const ebb_status status = ebb_offload(p->place->runtime, &args, &info);
    if (status != EBB_OK) {
        raise_last_error(status);
        return false;
    }
    p->activation = info.activation;
    p->is_recomputed = info.placement == EBB_PLACE_RECOMPUTE;
    return true;
}

static PyObject *move(Hooks *h, struct device_place *place, const struct saved *s) {
    Packed *p = new_packed(h);
    if (p == NULL) {
        return NULL;
    }
    p->place = place;
    p->version = s->version;
    struct held_source *source = hold_source(p, s->tensor, is_leaf(s));
    if (source == NULL) {
        Py_DECREF(p);
        return NULL;
    }
    uint64_t storage_id = 0;
    if (!describe(p, s, &storage_id) || !offload(p, s, storage_id)) {
        Py_DECREF(p);
        free_source(source);
        return NULL;
    }
    ++h->moved_count;
    h->moved_bytes += s->size_bytes;
    place->unwaited_bytes += s->size_bytes;
    if (place->calling_thread && place->unwaited_bytes >= k_wait_bytes) {
        /* Nothing else would give the memory of sources back that were given up. */
        place->unwaited_bytes = 0;
        if (!wait_for(place, 0)) {
            Py_DECREF(p);
            return NULL;
        }
    }
    return (PyObject *)p;
}

/* Also where the answer is an exception. */
static bool is_true(PyObject *tensor, PyObject *method) {
    PyObject *answer = PyObject_CallMethodNoArgs(tensor, method);
    const bool is = answer != Py_False;
    Py_XDECREF(answer);
    return is;
}

/* Moved, or passed through where it stays. */
static PyObject *pack_at(Hooks *h, struct device_place *place, struct saved *s) {
    PyObject *task = PyObject_CallNoArgs(h->current_graph_task);
    if (task == NULL) {
        return NULL;
    }
    const bool in_backward = PyLong_AsLong(task) != -1;
    Py_DECREF(task);
    if (in_backward || place->runtime == NULL) {
        return pass(h, s->tensor, is_leaf(s));
    }
    const int stays = never_moves(h, s);
    if (stays != 0) {
        return stays < 0 ? NULL : pass(h, s->tensor, is_leaf(s));
    }
    if (!read_number(s->tensor, g_names.version, &s->version)) {
        PyErr_Clear(); /* of inference mode */
        return pass(h, s->tensor, is_leaf(s));
    }
    return move(h, place, s);
}

/* A plain tensor, whose view, layout and size are read if it is readable. */
static PyObject *pack_plain(Hooks *h, struct saved *s, bool readable) {
    if (!readable || s->size_bytes < h->floor_bytes) {
        return pass(h, s->tensor, is_leaf(s));
    }
    /* Bits of the tensor that its bytes do not have; one of them only where elements are complex. */
    if (is_true(s->tensor, g_names.is_neg) ||
        (s->view.type.code == k_dl_complex && is_true(s->tensor, g_names.is_conj))) {
        return PyErr_Occurred() ? NULL : ask_other(h, "pack_odd", s->tensor);
    }
    struct device_place *place = find_place(&h->places, s->view.device);
    if (place == NULL) {
        return ask_other(h, "pack_elsewhere", s->tensor);
    }
    ++place->busy; /* from before its runtime is looked at: what is asked meanwhile lets others run, who may close it */
    PyObject *packed = pack_at(h, place, s);
    --place->busy;
    return packed;
}

static PyObject *pack(Hooks *h, PyObject *tensor, const struct recipe *recipe) {
    if ((PyObject *)Py_TYPE(tensor) != h->tensor_type) {
        if ((PyObject *)Py_TYPE(tensor) == h->parameter_type) {
            return pass(h, tensor, true);
        }
        return ask_other(h, "pack_subclass", tensor);
    }
    struct saved s; /* its layout is large: what is not read of it is not written either */
    s.tensor = tensor;
    s.recipe = recipe;
    if (h->table->view_object(tensor, &s.view) != 0) {
        PyErr_Clear(); /* sparse, quantised, conjugate, on a device of no memory */
        return ask_other(h, "pack_odd", tensor);
    }
    const bool readable = s.view.data != NULL && read_layout(&s.view, &s.layout, &s.size_bytes);
    s.producer = PyObject_GetAttr(tensor, g_names.grad_fn);
    if (s.producer == NULL) {
        return NULL;
    }
    PyObject *packed = pack_plain(h, &s, readable);
    Py_DECREF(s.producer);
    return packed;
}

PyObject *hooks_pack(Hooks *h, PyObject *tensor) {
    return pack(h, tensor, NULL);
}

PyObject *hooks_pack_in_frame(Hooks *h, PyObject *const *args, Py_ssize_t count) {
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
