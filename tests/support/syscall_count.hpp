// Counts the system calls of a piece of code: in a child process under a seccomp filter that traps every call but those
// that end it. Linux on x86-64.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>

namespace ebb::test {

inline volatile sig_atomic_t trapped_calls = 0;

inline void on_trapped_call(int, siginfo_t *, void *context) {
    trapped_calls = trapped_calls + 1;
    static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_RAX] = -ENOSYS;
}

inline bool trap_calls() {
    struct sigaction action {};
    action.sa_sigaction = on_trapped_call;
    action.sa_flags = SA_SIGINFO;
    if (sigaction(SIGSYS, &action, nullptr) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
        return false;
    }
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
    };
    const sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

constexpr int k_cannot_count = 254;

// prepare() runs free, counted() under the filter. Up to 250 calls are counted; k_cannot_count when the system allows
// no filter, which is a failure of the test and not a reason to skip it.
template <class Prepare, class Counted>
int count_system_calls(Prepare &&prepare, Counted &&counted) {
    const pid_t child = fork();
    if (child == 0) {
        prepare();
        if (!trap_calls()) {
            _exit(k_cannot_count);
        }
        counted();
        const int calls = trapped_calls;
        _exit(std::min(calls, 250));
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) {
        return k_cannot_count;
    }
    return WEXITSTATUS(status);
}

}  // namespace ebb::test
