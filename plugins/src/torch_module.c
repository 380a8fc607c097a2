/* The extension module ebb._torch_hooks. */
#include "torch_allocator.h"
#include "torch_hooks.h"
#include "torch_packed.h"
#include "torch_python.h"

static struct PyModuleDef g_module = {PyModuleDef_HEAD_INIT, .m_name = "ebb._torch_hooks",
                                      .m_doc = "Hooks for PyTorch's saved tensors.", .m_size = -1};

PyMODINIT_FUNC PyInit__torch_hooks(void) {
    if (!make_attribute_names() || PyType_Ready(&g_packed_type) != 0 || PyType_Ready(&g_hooks_type) != 0 ||
        PyType_Ready(&g_allocator_type) != 0) {
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
