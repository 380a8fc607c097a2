// The layers and what each may include, checked over the sources. A core that includes no thread, clock, random
// device or CUDA is what lets a simulated device drive the very same code.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

const std::map<std::string, std::set<std::string>> k_may_include{
    {"base", {}},
    {"device", {"base"}},
    {"memory", {"base", "device"}},
    {"transfer", {"base", "device"}},
    {"schedule", {"base", "device", "memory", "transfer"}},
    {"observe", {"base", "device", "memory", "transfer", "schedule"}},
    {"runtime", {"base", "device", "memory", "transfer", "schedule", "observe"}},
    {"capi", {"base", "device", "memory", "transfer", "schedule", "observe", "runtime"}},
    {"model", {"base", "device", "schedule", "observe"}},
    {"simulate", {"base", "device", "memory", "transfer", "schedule", "observe", "runtime", "capi", "model"}},
    {"cli", {"base", "device", "memory", "transfer", "schedule", "observe", "runtime", "capi", "model", "simulate"}},
};
const std::set<std::string> k_may_include_the_abi{"capi", "simulate", "cli"};
const std::set<std::string> k_deterministic{"memory", "transfer", "schedule", "runtime", "model"};
const std::set<std::string> k_not_deterministic{"thread",      "mutex",      "shared_mutex", "condition_variable",
                                                "future",      "semaphore",  "stop_token",   "barrier",
                                                "latch",       "chrono",     "random",       "ctime",
                                                "time.h",      "sys/time.h", "pthread.h",    "threads.h",
                                                "sys/random.h"};

struct include {
    std::string path;
    bool quoted = false;
};

// The rest of a line after blanks and, if it follows, `word`; null when it does not.
const char *after(const char *at, const char *word) {
    while (*at == ' ' || *at == '\t') {
        ++at;
    }
    const size_t size = std::strlen(word);
    return std::strncmp(at, word, size) == 0 ? at + size : nullptr;
}

std::vector<include> includes_of(const std::string &text) {
    std::vector<include> found;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        const char *at = after(line.c_str(), "#");
        at = at == nullptr ? nullptr : after(at, "include");
        at = at == nullptr ? nullptr : after(at, "");
        if (at != nullptr && (*at == '<' || *at == '"')) {
            const char *end = std::strchr(at + 1, *at == '<' ? '>' : '"');
            found.push_back({end == nullptr ? at + 1 : std::string(at + 1, end), *at == '"'});
        }
    }
    return found;
}

// What is wrong with one include in a file of a layer; empty when nothing is.
std::string fault_of(const std::string &layer, const include &inc) {
    if (k_deterministic.count(layer) != 0) {
        if (k_not_deterministic.count(inc.path) != 0) {
            return "threads, clocks and random devices belong to devices, not to " + layer;
        }
        if (inc.path.find("cuda") != std::string::npos || inc.path.find("nccl") != std::string::npos) {
            return "no CUDA in " + layer;
        }
    }
    const std::string folder = inc.path.substr(0, inc.path.find('/'));
    if (folder == "ebb") {
        return k_may_include_the_abi.count(layer) != 0 ? "" : layer + " does not know the C ABI";
    }
    if (k_may_include.count(folder) != 0 && inc.path != folder) {
        if (!inc.quoted) {
            return "our own headers are included with quotes";
        }
        const bool allowed = folder == layer || k_may_include.at(layer).count(folder) != 0;
        return allowed ? "" : layer + " may not include " + folder;
    }
    return inc.quoted ? "quoted includes start at src/ or include/" : "";
}

// CUDA and what includes it stay in one folder, which libebb is not linked with. Empty when nothing is wrong.
std::string cuda_fault_of(const std::string &path_in_src, const include &inc) {
    static const std::vector<std::string> starts{"cuda", "device/cuda/", "nvtx3/", "nccl", "cublas", "cudnn", "cupti"};
    for (const std::string &start : starts) {
        if (inc.path.compare(0, start.size(), start) == 0 && path_in_src.compare(0, 12, "device/cuda/") != 0) {
            return "CUDA belongs in src/device/cuda";
        }
    }
    return "";
}

std::vector<std::string> faults_in(const std::string &layer, const std::string &text) {
    std::vector<std::string> faults;
    for (const include &inc : includes_of(text)) {
        const std::string fault = fault_of(layer, inc);
        if (!fault.empty()) {
            faults.push_back(inc.path + ": " + fault);
        }
    }
    return faults;
}

std::string read(const fs::path &path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

bool is_source(const fs::path &path) {
    const std::string extension = path.extension().string();
    return extension == ".cpp" || extension == ".hpp" || extension == ".h" || extension == ".c" || extension == ".cu";
}

TEST(include_directions, hold_in_every_source) {
    const fs::path root = fs::path(EBB_SOURCE_DIR) / "src";
    size_t files = 0;
    for (const fs::directory_entry &entry : fs::recursive_directory_iterator(root)) {
        if (!entry.is_regular_file() || !is_source(entry.path())) {
            continue;
        }
        const fs::path relative = fs::relative(entry.path(), root);
        const std::string layer = relative.begin()->string();
        ASSERT_EQ(k_may_include.count(layer), 1U) << relative << " is in no layer";
        for (const std::string &fault : faults_in(layer, read(entry.path()))) {
            ADD_FAILURE() << "src/" << relative.string() << " includes " << fault;
        }
        for (const include &inc : includes_of(read(entry.path()))) {
            const std::string fault = cuda_fault_of(relative.string(), inc);
            EXPECT_TRUE(fault.empty()) << "src/" << relative.string() << " includes " << inc.path << ": " << fault;
        }
        ++files;
    }
    EXPECT_GT(files, 10U) << "the sources were not found under " << root;
}

TEST(include_directions, a_layer_includes_only_what_is_below) {
    EXPECT_TRUE(faults_in("memory", "#include \"device/device.hpp\"\n#include \"memory/staging.hpp\"\n").empty());
    EXPECT_EQ(faults_in("memory", "#include \"transfer/lanes.hpp\"\n").size(), 1U);
    EXPECT_EQ(faults_in("transfer", "#include \"memory/staging.hpp\"\n").size(), 1U);
    EXPECT_EQ(faults_in("base", "// text\n  #  include \"device/device.hpp\"\n").size(), 1U);
    EXPECT_EQ(faults_in("device", "#include \"runtime/runtime.hpp\"\n").size(), 1U);
    EXPECT_EQ(faults_in("runtime", "#include \"capi/capi.hpp\"\n").size(), 1U);
    EXPECT_TRUE(faults_in("capi", "#include \"runtime/runtime.hpp\"\n#include \"ebb/ebb.h\"\n").empty());
    EXPECT_EQ(faults_in("runtime", "#include \"ebb/ebb.h\"\n").size(), 1U);
    EXPECT_EQ(faults_in("memory", "#include \"staging.hpp\"\n").size(), 1U);
    EXPECT_EQ(faults_in("memory", "#include <memory/staging.hpp>\n").size(), 1U);
    EXPECT_TRUE(faults_in("runtime", "#include <memory>\n#include <vector>\n").empty());
}

TEST(include_directions, cuda_stays_in_its_folder) {
    for (const char *header : {"cuda_runtime_api.h", "cuda.h", "nvtx3/nvToolsExt.h", "nccl.h"}) {
        EXPECT_NE(cuda_fault_of("device/registry.cpp", {header, false}), "") << header;
        EXPECT_EQ(cuda_fault_of("device/cuda/cuda_device.cpp", {header, false}), "") << header;
    }
    EXPECT_NE(cuda_fault_of("device/module/module_device.cpp", {"device/cuda/cuda_device.hpp", true}), "");
    EXPECT_NE(cuda_fault_of("capi/runtime_api.cpp", {"device/cuda/cuda_api.hpp", true}), "");
    EXPECT_EQ(cuda_fault_of("device/registry.cpp", {"device/module/cuda_module_loader.hpp", true}), "");
    EXPECT_EQ(cuda_fault_of("device/cuda/kernels.cu", {"device/checksum_parts.hpp", true}), "");
}

TEST(include_directions, the_core_is_deterministic) {
    for (const std::string &layer : k_deterministic) {
        for (const std::string &header : k_not_deterministic) {
            EXPECT_EQ(faults_in(layer, "#include <" + header + ">\n").size(), 1U) << layer << ' ' << header;
        }
        EXPECT_EQ(faults_in(layer, "#include <cuda_runtime_api.h>\n").size(), 1U);
    }
    EXPECT_TRUE(faults_in("device", "#include <thread>\n#include <mutex>\n").empty());
}

}  // namespace
