#include "cuda_on_cpu.hpp"

#include <ucontext.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

namespace cuda_on_cpu {

position g_thread, g_block, g_block_dimensions;

namespace {

constexpr size_t k_stack_bytes = 128 * 1024;
constexpr unsigned k_warp = 32;

enum class fiber_state { runs, waits_for_block, waits_for_warp, done };

struct fiber {
    ucontext_t context{};
    std::unique_ptr<std::byte[]> stack = std::make_unique<std::byte[]>(k_stack_bytes);
    fiber_state state = fiber_state::done;
    unsigned turn = 0;
    std::array<std::byte, 16> exchanged[2];
};

struct block_of_fibers {
    std::vector<std::unique_ptr<fiber>> fibers;
    ucontext_t scheduler{};
    unsigned running = 0;
    const std::function<void()> *thread = nullptr;
};

block_of_fibers g_fibers;

void start_fiber() {
    (*g_fibers.thread)();
    g_fibers.fibers[g_fibers.running]->state = fiber_state::done;
}

void resume(unsigned which) {
    g_fibers.running = which;
    g_thread = {which, 0, 0};
    fiber &f = *g_fibers.fibers[which];
    f.state = fiber_state::runs;
    swapcontext(&g_fibers.scheduler, &f.context);
}

// Those in [first, last) that all wait at one place go on. Whether there were any.
bool let_go(unsigned first, unsigned last, fiber_state where) {
    for (unsigned i = first; i < last; ++i) {
        if (g_fibers.fibers[i]->state != where) {
            return false;
        }
    }
    for (unsigned i = first; i < last; ++i) {
        g_fibers.fibers[i]->state = fiber_state::runs;
    }
    return true;
}

bool let_meetings_go(unsigned threads) {
    bool any = let_go(0, threads, fiber_state::waits_for_block);
    for (unsigned first = 0; first < threads; first += k_warp) {
        any = let_go(first, first + k_warp, fiber_state::waits_for_warp) || any;
    }
    return any;
}

bool all_done(unsigned threads) {
    for (unsigned i = 0; i < threads; ++i) {
        if (g_fibers.fibers[i]->state != fiber_state::done) {
            return false;
        }
    }
    return true;
}

void run_block(unsigned threads) {
    for (unsigned i = 0; i < threads; ++i) {
        fiber &f = *g_fibers.fibers[i];
        getcontext(&f.context);
        f.context.uc_stack.ss_sp = f.stack.get();
        f.context.uc_stack.ss_size = k_stack_bytes;
        f.context.uc_link = &g_fibers.scheduler;
        makecontext(&f.context, start_fiber, 0);
        f.state = fiber_state::runs;
        f.turn = 0;
    }
    for (;;) {
        for (unsigned i = 0; i < threads; ++i) {
            if (g_fibers.fibers[i]->state == fiber_state::runs) {
                resume(i);
            }
        }
        if (all_done(threads)) {
            return;
        }
        if (!let_meetings_go(threads)) {
            std::fprintf(stderr, "a kernel's threads wait at different places, or some have ended\n");
            std::abort();
        }
    }
}

}  // namespace

void meet(meeting where) {
    fiber &f = *g_fibers.fibers[g_fibers.running];
    f.state = where == meeting::of_block ? fiber_state::waits_for_block : fiber_state::waits_for_warp;
    swapcontext(&f.context, &g_fibers.scheduler);
}

void *exchange_place(unsigned thread, unsigned turn) {
    return g_fibers.fibers[thread]->exchanged[turn].data();
}

unsigned &exchange_turn() {
    return g_fibers.fibers[g_fibers.running]->turn;
}

void run(dim3 grid, unsigned threads, const std::function<void()> &thread) {
    while (g_fibers.fibers.size() < threads) {
        g_fibers.fibers.push_back(std::make_unique<fiber>());
    }
    g_fibers.thread = &thread;
    g_block_dimensions = {threads, 1, 1};
    for (unsigned y = 0; y < grid.y; ++y) {
        for (unsigned x = 0; x < grid.x; ++x) {
            g_block = {x, y, 0};
            run_block(threads);
        }
    }
}

}  // namespace cuda_on_cpu
