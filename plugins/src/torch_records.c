#include "torch_records.h"

#include <stdlib.h>

struct name_record *record_of(PyObject *records, PyObject *name) {
    PyObject *known = PyDict_GetItemWithError(records, name);
    if (known != NULL) {
        return PyLong_AsVoidPtr(known);
    }
    struct name_record *record = PyErr_Occurred() ? NULL : calloc(1, sizeof *record);
    PyObject *address = record == NULL ? NULL : PyLong_FromVoidPtr(record);
    if (address == NULL || PyDict_SetItem(records, name, address) != 0) {
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

void end_step_of_records(PyObject *records) {
    PyObject *name, *address;
    Py_ssize_t at = 0;
    while (PyDict_Next(records, &at, &name, &address)) {
        struct name_record *record = PyLong_AsVoidPtr(address);
        record->needs_copies = record->needs_copies || atomic_load(&record->lent) != 0;
    }
}

PyObject *held_elsewhere(PyObject *records) {
    PyObject *list = PyList_New(0);
    PyObject *name, *address;
    Py_ssize_t at = 0;
    while (list != NULL && PyDict_Next(records, &at, &name, &address)) {
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
