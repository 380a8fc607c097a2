/* What is known of all activations of a name: records is a dict, name -> address of its record. */
#ifndef EBB_PLUGINS_TORCH_RECORDS_H
#define EBB_PLUGINS_TORCH_RECORDS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct name_record {
    atomic_long lent;  /* reloads in slots that PyTorch has not freed */
    bool needs_copies; /* one was still held when the step ended: its reloads go to memory of PyTorch's own */
    bool is_held;      /* someone else held one whose source was given up: copying frees nothing */
    uint64_t held_count, held_bytes;
};

/* It stays, also when the dict is gone: tensors that are still out name it. Null with an exception. */
struct name_record *record_of(PyObject *records, PyObject *name);

/* What of the step's reloads PyTorch still holds will be held in the next one, too. */
void end_step_of_records(PyObject *records);

/* [(name, count, bytes)] of what was copied and not freed, since somebody else held it; null with an exception. */
PyObject *held_elsewhere(PyObject *records);

#endif
