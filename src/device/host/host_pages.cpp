#include "device/host/host_pages.hpp"

#include <fmt/core.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <limits>
#include <system_error>
#include <thread>
#include <vector>

namespace ebb {
namespace {

constexpr uint64_t k_huge_page_bytes = 2ULL << 20U;
// Below this a second thread costs more than it brings.
constexpr uint64_t k_touch_share_bytes = 64ULL << 20U;
constexpr uint32_t k_most_touch_threads = 8;
constexpr int k_populate_write = 23;  // MADV_POPULATE_WRITE, Linux 5.14; older headers lack the name

uint64_t page_bytes() noexcept {
    static const auto bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    return bytes;
}

void *reserve(uint64_t size_bytes) noexcept {
    void *data = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return data == MAP_FAILED ? nullptr : data;
}

// Huge pages halve the cost of a large copy's address translation, but only at their own alignment: take more
// address space and give the edges back.
void *reserve_aligned(uint64_t size_bytes) noexcept {
    if (size_bytes < k_huge_page_bytes) {
        return reserve(size_bytes);
    }
    auto *wide = static_cast<char *>(reserve(size_bytes + k_huge_page_bytes));
    if (wide == nullptr) {
        return nullptr;
    }
    const auto misfit = reinterpret_cast<uintptr_t>(wide) % k_huge_page_bytes;
    const uint64_t head = misfit == 0 ? 0 : k_huge_page_bytes - misfit;
    if (head > 0) {
        munmap(wide, head);
    }
    if (head < k_huge_page_bytes) {
        munmap(wide + head + size_bytes, k_huge_page_bytes - head);
    }
    madvise(wide + head, size_bytes, MADV_HUGEPAGE);
    return wide + head;
}

// 0, or the errno of a refusal.
int touch(char *data, uint64_t size_bytes) noexcept {
    if (madvise(data, size_bytes, k_populate_write) == 0) {
        return 0;
    }
    if (errno != EINVAL) {
        return errno;
    }
    for (uint64_t at = 0; at < size_bytes; at += page_bytes()) {
        static_cast<volatile char *>(data)[at] = 0;
    }
    return 0;
}

// False where the system refuses; the thread then stays where it is.
bool run_on(const std::vector<int> &cpus) noexcept {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int cpu : cpus) {
        if (cpu >= 0 && cpu < CPU_SETSIZE) {
            CPU_SET(static_cast<size_t>(cpu), &set);
        }
    }
    return sched_setaffinity(0, sizeof set, &set) == 0;
}

int touch_all(const host_pages &pages, uint32_t threads, const std::vector<int> &cpus) {
    if (threads == 0) {
        threads = std::clamp(std::thread::hardware_concurrency(), 1U, k_most_touch_threads);
    }
    const uint64_t shares = std::clamp<uint64_t>(pages.size_bytes / k_touch_share_bytes, 1, threads);
    const uint64_t share_bytes =
        (pages.size_bytes / shares + k_huge_page_bytes - 1) / k_huge_page_bytes * k_huge_page_bytes;
    std::atomic<int> failure{0};
    const auto touch_share = [&](uint64_t from) {
        const int refused =
            touch(static_cast<char *>(pages.data) + from, std::min(share_bytes, pages.size_bytes - from));
        if (refused != 0) {
            failure.store(refused, std::memory_order_relaxed);
        }
    };
    // The calling thread does a share too, unless the touching threads have to be moved to CPUs: it stays where it is.
    const uint64_t first_of_helpers = cpus.empty() ? share_bytes : 0;
    std::vector<std::thread> helpers;
    for (uint64_t from = first_of_helpers; from < pages.size_bytes; from += share_bytes) {
        try {
            helpers.emplace_back([&, from] {
                static_cast<void>(cpus.empty() || run_on(cpus));
                touch_share(from);
            });
        } catch (const std::system_error &) {
            touch_share(from);  // no thread to be had: slower, not wrong
        }
    }
    if (cpus.empty()) {
        touch_share(0);
    }
    for (std::thread &helper : helpers) {
        helper.join();
    }
    return failure.load(std::memory_order_relaxed);
}

status refused(uint64_t size_bytes, int reason) {
    return {code::out_of_host_memory,
            fmt::format("the system refused {} bytes of memory ({}); free memory, or lower what is "
                        "asked for",
                        size_bytes, std::strerror(reason))};
}

}  // namespace

uint64_t whole_pages(uint64_t size_bytes) noexcept {
    const uint64_t page = page_bytes();
    if (size_bytes > std::numeric_limits<uint64_t>::max() - page) {
        return std::numeric_limits<uint64_t>::max();
    }
    return (size_bytes + page - 1) / page * page;
}

result<host_pages> reserve_pages(uint64_t size_bytes) {
    // No address space is larger, and the sums below must not wrap.
    constexpr uint64_t k_absurd_bytes = 1ULL << 62U;
    if (size_bytes > k_absurd_bytes) {
        return refused(size_bytes, ENOMEM);
    }
    host_pages pages{nullptr, whole_pages(size_bytes)};
    pages.data = reserve_aligned(pages.size_bytes);
    if (pages.data == nullptr) {
        return refused(size_bytes, errno);
    }
    return pages;
}

status touch_pages(const host_pages &pages, uint32_t threads, const std::vector<int> &cpus) {
    const int reason = touch_all(pages, threads, cpus);
    return reason == 0 ? status{} : refused(pages.size_bytes, reason);
}

result<host_pages> map_pages(uint64_t size_bytes, uint32_t threads) {
    result<host_pages> pages = reserve_pages(size_bytes);
    if (!pages.ok()) {
        return pages;
    }
    if (status touched = touch_pages(pages.value(), threads); !touched.ok()) {
        unmap_pages(pages.value());
        return touched;
    }
    return pages;
}

void unmap_pages(const host_pages &pages) noexcept {
    munmap(pages.data, pages.size_bytes);
}

bool lock_pages(const host_pages &pages) noexcept {
    return mlock(pages.data, pages.size_bytes) == 0;
}

}  // namespace ebb
