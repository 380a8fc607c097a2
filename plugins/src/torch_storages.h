/* Storages that activations of ours are, or were, in. While one is known its address is not another's: their sources
 * hold it, and from when one of them was given up, a weak reference. */
#ifndef EBB_PLUGINS_TORCH_STORAGES_H
#define EBB_PLUGINS_TORCH_STORAGES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct known_storage {
    uintptr_t address;
    uint64_t id;
    uint64_t users, sources; /* activations in it, and those of them whose source is held */
    PyObject *type;          /* of the storage, whose function frees the weak reference; null: none is held yet */
    PyObject *handle;        /* of the weak reference */
};

struct storages {
    struct known_storage *known; /* open addressing, a power of two */
    size_t capacity, count;
    uint64_t last_id;
};

/* One user more of the tensor's storage, which `held` then holds; 0 with an exception when that cannot be had. */
uintptr_t use_storage(struct storages *s, PyObject *tensor, uint64_t *id, PyObject **held);

/* One user less; `with_source`: one whose source is still held. Nothing to do where the address is 0. */
void leave_storage(struct storages *s, uintptr_t address, bool with_source);

/* Before the source in it goes, while others may still name the storage. False with an exception. */
bool hold_weakly(struct storages *s, uintptr_t address, PyObject *storage);

/* Whether somebody else holds the storage, though all sources in it were given up. */
bool is_held_elsewhere(struct storages *s, uintptr_t address);

/* Whether more than one activation is in it. */
bool is_shared(const struct storages *s, uintptr_t address);

#endif
