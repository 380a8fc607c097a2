#include "cuda_double/double_stream.hpp"

#include <thread>
#include <utility>

#include "base/check.hpp"

namespace ebb::test {
namespace {

struct job {
    std::function<void()> run;
    work_kind kind;
    device_life *life;

    static void perform(void *argument) {
        const std::unique_ptr<job> self(static_cast<job *>(argument));
        if (self->kind == work_kind::always) {
            self->run();
            return;
        }
        const bool finite = self->kind == work_kind::finite;
        if (self->life->enter(finite)) {
            self->run();
            self->life->leave(finite);
        }
    }
};

}  // namespace

void device_life::end(cudaError_t error) {
    error_ = error;
    while (under_way_ != 0) {
        std::this_thread::yield();
    }
}

bool device_life::enter(bool ends_by_itself) {
    under_way_ += ends_by_itself ? 1 : 0;
    if (error_ != cudaSuccess) {
        leave(ends_by_itself);
        return false;
    }
    return true;
}

void device_life::leave(bool ends_by_itself) {
    under_way_ -= ends_by_itself ? 1 : 0;
}

void enqueue(double_stream &stream, std::function<void()> run, work_kind kind, device_life &life) {
    operation launched;
    launched.kind = operation_kind::launch;
    launched.function = job::perform;
    launched.target = new job{std::move(run), kind, &life};
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
