/* Names of saved tensors, by the modules that they are made in. */
#ifndef EBB_PLUGINS_TORCH_NAMES_H
#define EBB_PLUGINS_TORCH_NAMES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

enum { k_most_depth = 64, k_cached_names = 256 };

struct cached_name {
    PyObject *scope, *producer_type, *name;
};

struct tensor_names {
    PyObject *outputs;    /* dict: what produced a module's output -> that module's name */
    unsigned long thread; /* whose forward passes have scopes */
    PyObject *scopes[k_most_depth];
    int depth; /* may exceed k_most_depth: those have no scope of their own */
    struct cached_name cached[k_cached_names];
};

/* False with an exception. */
bool init_names(struct tensor_names *n);
void clear_names(struct tensor_names *n);

/* A forward pass begins or is over, on this thread: scopes of one that was left by an exception are gone, and nodes are
 * let go. */
void begin_pass(struct tensor_names *n);

/* Before a module's forward: its scope. Takes the name. */
void enter_scope(struct tensor_names *n, PyObject *name);

/* After it, also where it raised: names what it returned. False with an exception. */
bool leave_scope(struct tensor_names *n, PyObject *tensor_type, PyObject *output);

/* Whether this thread's modules are scopes. */
bool has_scopes(const struct tensor_names *n);

/* The name of what `producer` made, a new reference, or null with an exception: that of the module which returned it,
 * else, of a producer "MulBackward0" in scope "decoder.up", "decoder.up.Mul". */
PyObject *name_of(struct tensor_names *n, PyObject *producer);

#endif
