#include "cuda_double/double_stream.hpp"

#include <utility>

#include "base/check.hpp"

namespace ebb::test {
namespace {

struct job {
    std::function<void()> run;
    const std::atomic<int> *broken;

    static void perform(void *argument) {
        const std::unique_ptr<job> self(static_cast<job *>(argument));
        if (self->broken->load(std::memory_order_relaxed) == cudaSuccess) {
            self->run();
        }
    }
};

}  // namespace

void enqueue(double_stream &stream, std::function<void()> run, const std::atomic<int> &broken) {
    operation launched;
    launched.kind = operation_kind::launch;
    launched.function = job::perform;
    launched.target = new job{std::move(run), &broken};
    EBB_CHECK(stream.thread->enqueue(stream.id(), launched).ok());
}

marker *mark(double_stream &stream, marker_pool &markers, event_kind kind) {
    operation record;
    record.kind = operation_kind::record;
    record.point = markers.take(kind, 2);
    EBB_CHECK(stream.thread->enqueue(stream.id(), record).ok());
    return record.point;
}

void wait_for(double_stream &later, marker *point) {
    operation wait;
    wait.kind = operation_kind::wait;
    wait.point = point;
    EBB_CHECK(later.thread->enqueue(later.id(), wait).ok());
}

}  // namespace ebb::test
