// Calls the program's commands in this process.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "cli/commands.hpp"
#include "observe/step_model_json.hpp"
#include "schedule/step_model.hpp"

namespace ebb::cli::test {

struct ran {
    int status = -1;
    std::string out;
    std::string err;

    // One object and nothing else.
    [[nodiscard]] nlohmann::json json() const {
        nlohmann::json read = nlohmann::json::parse(out, nullptr, false);
        EXPECT_TRUE(read.is_object()) << out << err;
        return read;
    }
};

inline ran run(const arguments &args, bool err_is_terminal = false) {
    std::ostringstream out;
    std::ostringstream err;
    terminal io{out, err, err_is_terminal};
    const int status = run_ebb(args, io);
    return {status, out.str(), err.str()};
}

inline arguments joined(arguments first, const arguments &second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
}

// A small step by a model's dimensions: 8 billion parameters over eight devices with 80 GB each.
inline arguments small_step(const std::string &command, const arguments &more = {}) {
    return joined({command, "--machine", "h100-pcie5", "--model", "generic-dense", "--shards", "8"}, more);
}

// Files of one test.
class cli_files : public ::testing::Test {
protected:
    std::string path(const std::string &name) const {
        const auto *test = ::testing::UnitTest::GetInstance()->current_test_info();
        return ::testing::TempDir() + "ebb_cli_" + test->name() + "_" + name;
    }
    std::string write(const std::string &name, const std::string &text) {
        std::ofstream(path(name)) << text;
        written_.push_back(path(name));
        return path(name);
    }
    static std::string read(const std::string &file) {
        std::ifstream in(file);
        return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    }
    void TearDown() override {
        for (const std::string &file : written_) {
            std::remove(file.c_str());
        }
    }

    std::vector<std::string> written_;
};

// Eight layers of two tensors; the second can be computed again from the first.
inline step_model recorded_step() {
    step_model m;
    m.fixed_bytes = uint64_t{1} << 30U;
    const auto add = [&m](step_event_kind what, uint32_t tensor, double time_ns = 0) {
        step_event e;
        e.what = what;
        e.tensor = tensor;
        e.time_ns = time_ns;
        m.events.push_back(e);
    };
    constexpr uint32_t k_layers = 8;
    for (uint32_t t = 0; t < 2 * k_layers; ++t) {
        step_tensor tensor;
        tensor.name = "layer." + std::to_string(t / 2) + (t % 2 == 0 ? "/input" : "/gate");
        tensor.layer = t / 2;
        tensor.size_bytes = uint64_t{256} << 20U;
        if (t % 2 == 1) {
            tensor.can_recompute = true;
            tensor.recompute_ns = 2e6;
            tensor.recompute_from = {t - 1};
        }
        m.tensors.push_back(tensor);
        add(step_event_kind::work, k_no_index, 4e6);
        add(step_event_kind::produce, t);
    }
    for (uint32_t t = 2 * k_layers; t-- > 0;) {
        add(step_event_kind::use, t);
        add(step_event_kind::work, k_no_index, 8e6);
        add(step_event_kind::release, t);
    }
    return m;
}

}  // namespace ebb::cli::test
