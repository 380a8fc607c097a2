// Copies of the host device through lanes, both directions at once, against plain memcpy on as many threads over the
// very same memory. Every iteration starts from cleared destinations and compares all bytes; neither is timed.
#include <benchmark/benchmark.h>

#include <array>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "base/check.hpp"
#include "device/host/host_device.hpp"
#include "transfer/lanes.hpp"
#include "transfer/timelines.hpp"

namespace {

constexpr uint64_t k_bytes = 256ULL << 20U;  // per direction
constexpr uint64_t k_chunk_bytes = 16ULL << 20U;

struct route {
    ebb::copy_direction direction;
    unsigned char *destination;
    const unsigned char *source;
};

void check(const ebb::status &done) {
    if (!done.ok()) {
        std::fprintf(stderr, "lane_copy: %s\n", done.text().c_str());
        std::exit(1);
    }
}

template <class T>
T value_of(ebb::result<T> made) {
    check(made.why());
    return std::move(made).value();
}

// One device and one set of buffers for all benchmarks, so that they differ in nothing but who copies.
class setting {
public:
    static setting &get() {
        static setting the_one;
        return the_one;
    }

    ebb::host_device &dev() { return device_; }
    [[nodiscard]] const std::array<route, 2> &routes() const { return routes_; }

    void clear() const {
        for (const route &each : routes_) {
            std::memset(each.destination, 0, k_bytes);
        }
    }
    [[nodiscard]] bool all_there() const {
        return std::memcmp(routes_[0].destination, routes_[0].source, k_bytes) == 0 &&
               std::memcmp(routes_[1].destination, routes_[1].source, k_bytes) == 0;
    }

private:
    static ebb::host_device_options options() {
        ebb::host_device_options options;
        options.capacity_bytes = 2 * k_bytes;
        return options;
    }
    template <class T>
    static unsigned char *bytes(ebb::result<T> memory) {
        return static_cast<unsigned char *>(value_of(std::move(memory)));
    }
    setting() {
        std::mt19937_64 random(1);
        for (const route &each : routes_) {
            auto *source = const_cast<unsigned char *>(each.source);
            for (uint64_t at = 0; at < k_bytes; at += sizeof(uint64_t)) {
                const uint64_t word = random();
                std::memcpy(source + at, &word, sizeof word);
            }
        }
    }

    ebb::host_device device_{options()};
    std::array<route, 2> routes_{{
        {ebb::copy_direction::d2h, bytes(device_.map_host(k_bytes)), bytes(device_.alloc_device(k_bytes))},
        {ebb::copy_direction::h2d, bytes(device_.alloc_device(k_bytes)), bytes(device_.map_host(k_bytes))},
    }};
};

// run() makes all copies and returns when they are done.
void measure(benchmark::State &state, const std::function<void()> &run) {
    using clock = std::chrono::steady_clock;
    setting &where = setting::get();
    for (auto _ : state) {
        where.clear();
        const clock::time_point start = clock::now();
        run();
        state.SetIterationTime(std::chrono::duration<double>(clock::now() - start).count());
        if (!where.all_there()) {
            state.SkipWithError("bytes differ");
            break;
        }
    }
    state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(2 * k_bytes));
}

void lane_copy_ours(benchmark::State &state) {
    setting &where = setting::get();
    ebb::timelines lines(where.dev());
    const auto lanes = value_of(ebb::lanes::make(where.dev(), lines, 1, k_chunk_bytes));
    measure(state, [&] {
        ebb::ticket_set all;
        for (const route &each : where.routes()) {
            ebb::lanes::transfer transfer = lanes->begin(each.direction);
            check(transfer.copy(each.destination, each.source, k_bytes));
            ebb::ticket copied;
            check(transfer.finish(copied));
            EBB_CHECK(all.add(copied));
        }
        for (const ebb::ticket done : all) {
            check(lines.synchronize(done));
        }
    });
    check(lines.synchronize_all());
}

// Two threads that live as long as the benchmark, as streams do; each copies one direction in one call.
void lane_copy_memcpy(benchmark::State &state) {
    const std::array<route, 2> &routes = setting::get().routes();
    std::barrier start(3);
    std::barrier end(3);
    bool over = false;
    const auto work = [&](const route &mine) {
        while (true) {
            start.arrive_and_wait();
            if (over) {
                return;
            }
            std::memcpy(mine.destination, mine.source, k_bytes);
            end.arrive_and_wait();
        }
    };
    std::thread out(work, std::cref(routes[0]));
    std::thread in(work, std::cref(routes[1]));
    measure(state, [&] {
        start.arrive_and_wait();
        end.arrive_and_wait();
    });
    over = true;
    start.arrive_and_wait();
    out.join();
    in.join();
}

BENCHMARK(lane_copy_ours)->Name("lane_copy/ours")->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK(lane_copy_memcpy)->Name("lane_copy/memcpy")->UseManualTime()->Unit(benchmark::kMillisecond);

}  // namespace
