#include "device/module/cuda_module_loader.hpp"

#include <dlfcn.h>
#include <fmt/core.h>
#include <unistd.h>

#if defined(EBB_CUDA_BUILT_IN)
extern "C" const ebb::device_module *ebb_cuda_module();
#endif

namespace ebb {
namespace {

constexpr const char *k_where_else =
    "set EBB_CUDA_LIBRARY (or the option cuda_library) to the file's path, or device to \"host\"";

const device_module *built_in() noexcept {
#if defined(EBB_CUDA_BUILT_IN)
    return ebb_cuda_module();
#else
    return nullptr;
#endif
}

// The folder that this code was loaded from.
std::string own_folder() {
    Dl_info found{};
    if (dladdr(reinterpret_cast<const void *>(&load_cuda_module), &found) == 0 || found.dli_fname == nullptr) {
        return ".";
    }
    const std::string path = found.dli_fname;
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? "." : path.substr(0, slash);
}

result<const device_module *> checked(const device_module *module, const std::string &file) {
    if (module == nullptr || module->version != k_device_module_version) {
        return status{
            code::unsupported,
            fmt::format("the CUDA backend in {} is version {} of what libebb talks to it by, and this libebb "
                        "needs version {}: take both from one build, or {}",
                        file, module == nullptr ? 0 : module->version, k_device_module_version, k_where_else)};
    }
    return module;
}

}  // namespace

result<const device_module *> load_cuda_module(const std::string &file) {
    if (file.empty() && built_in() != nullptr) {
        return checked(built_in(), "this library");
    }
    const std::string path = file.empty() ? own_folder() + "/libebb_cuda.so" : file;
    if (access(path.c_str(), F_OK) != 0) {
        return status{code::unsupported, fmt::format("the CUDA backend is a library of its own, and there is no {}; {}",
                                                     path, k_where_else)};
    }
    // Its symbols are for nobody else, and it holds threads' and exit's handlers: it stays.
    void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == nullptr) {
        const char *why = dlerror();
        return status{code::unsupported, fmt::format("the CUDA backend {} cannot be loaded: {}; {}", path,
                                                     why == nullptr ? "no reason given" : why, k_where_else)};
    }
    const auto entry = reinterpret_cast<device_module_function>(dlsym(library, k_cuda_module_symbol));
    if (entry == nullptr) {
        return status{code::unsupported, fmt::format("{} is no CUDA backend of Ebb: it has no function {}; {}", path,
                                                     k_cuda_module_symbol, k_where_else)};
    }
    return checked(entry(), path);
}

bool nvidia_driver_is_installed() {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (driver == nullptr) {
        return false;
    }
    dlclose(driver);
    return true;
}

}  // namespace ebb
