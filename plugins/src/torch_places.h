/* The devices whose tensors are moved, each with its runtime. */
#ifndef EBB_PLUGINS_TORCH_PLACES_H
#define EBB_PLUGINS_TORCH_PLACES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "dlpack_table.h"
#include "ebb/ebb.h"

enum { k_most_places = 16 };

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

struct places {
    struct device_place *at[k_most_places];
    int count;
};

/* For good: tensors that are still out name it. False with an exception. */
bool add_place(struct places *places, const struct device_place *added);

/* Null: it has none. */
struct device_place *find_place(const struct places *places, struct dl_device device);

/* The runtimes are about to be closed: a list of the addresses of those that are over, or null with an exception. One
 * that PyTorch still has memory of, or that another thread is calling, lives on, for the memory and that call alone. */
PyObject *forget_places(struct places *places);

/* In a child process: the threads of the runtimes are not there. */
void lose_places(struct places *places);

/* That of PyTorch on this thread; false with an exception. */
bool current_stream(const struct device_place *place, const struct dl_exchange_table *table, ebb_stream *stream);

/* Blocks for the bytes of that activation; for the copies of all sources that were given up where it is 0. False with
 * an exception. */
bool wait_for(const struct device_place *place, ebb_activation activation);

#endif
