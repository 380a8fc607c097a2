// What the thread sanitizer takes for the order of work on streams. Operations and markers pass through locks, and to
// the sanitizer a lock orders all that its users did before: a kernel that merely was over when another thread took the
// lock would count as waited for, and a wait that is missing would show in one run of a hundred. So in builds with the
// sanitizer these locks order nothing, and what a stream promises is said instead: an operation comes behind what its
// caller did before it was enqueued and behind those before it, and who waited for a stream comes behind what was done.
// What a marker orders needs no words: its stream stores that it was passed, and who waits reads that.
// In other builds all of this is empty.
#pragma once

#include <array>
#include <cstdint>

#ifdef EBB_SANITIZES_THREADS
extern "C" {
void AnnotateIgnoreSyncBegin(const char *file, int line);
void AnnotateIgnoreSyncEnd(const char *file, int line);
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
void __tsan_acquire(void *point);
void __tsan_release(void *point);
}
#endif

namespace ebb {

#ifdef EBB_SANITIZES_THREADS

// While one lives, locks and atomics that its thread uses order nothing, nor is what they protect checked.
class unordered_section {
public:
    unordered_section() { begin(); }
    ~unordered_section() { end(); }
    unordered_section(const unordered_section &) = delete;
    unordered_section &operator=(const unordered_section &) = delete;

    static void begin() {
        AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    }
    static void end() {
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
        AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
    }
};

// The order of one stream. All but done() are called in an unordered section, under the stream's lock.
class sanitizer_order {
public:
    void enqueue() { say(__tsan_release, &operations_[enqueued_++ % operations_.size()]); }
    void take() { say(__tsan_acquire, &operations_[taken_++ % operations_.size()]); }
    void done() { __tsan_release(&done_); }
    void waited() const { say(__tsan_acquire, &done_); }

private:
    static void say(void (*what)(void *), const char *point) {
        unordered_section::end();
        what(const_cast<char *>(point));
        unordered_section::begin();
    }

    // With more operations under way than this, one counts as enqueued when a later one was: less is found then.
    std::array<char, 4096> operations_{};
    uint64_t enqueued_ = 0;
    uint64_t taken_ = 0;
    char done_ = 0;
};

#else

class unordered_section {
public:
    unordered_section() noexcept {}  // not trivial: none is unused
};

class sanitizer_order {
public:
    void enqueue() noexcept {}
    void take() noexcept {}
    void done() noexcept {}
    void waited() const noexcept {}
};

#endif

}  // namespace ebb
