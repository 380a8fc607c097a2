// The real program: what a shell sees.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

namespace ebb::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class child {
public:
    explicit child(std::vector<std::string> args) {
        EXPECT_EQ(pipe(out_), 0);
        EXPECT_EQ(pipe(err_), 0);
        pid_ = fork();
        if (pid_ == 0) {
            dup2(out_[1], STDOUT_FILENO);
            dup2(err_[1], STDERR_FILENO);
            for (const int fd : {out_[0], out_[1], err_[0], err_[1]}) {
                close(fd);
            }
            args.insert(args.begin(), "ebb");
            std::vector<char *> argv;
            for (std::string &a : args) {
                argv.push_back(a.data());
            }
            argv.push_back(nullptr);
            execv(EBB_PROGRAM, argv.data());
            _exit(127);
        }
        close(out_[1]);
        close(err_[1]);
    }
    child(const child &) = delete;
    child &operator=(const child &) = delete;
    ~child() {
        close(out_[0]);
        close(err_[0]);
    }

    void interrupt() const { kill(pid_, SIGINT); }
    // Waits until the program catches the signal; else it would end by it before it has said so.
    void wait_until_it_catches(int signal) const {
        const std::string path = "/proc/" + std::to_string(pid_) + "/status";
        for (bool caught = false; !caught;) {
            std::FILE *file = std::fopen(path.c_str(), "r");
            ASSERT_NE(file, nullptr);
            std::array<char, 256> line{};
            while (std::fgets(line.data(), line.size(), file) != nullptr) {
                if (std::strncmp(line.data(), "SigCgt:", 7) == 0) {
                    caught = (std::strtoull(line.data() + 7, nullptr, 16) >> (signal - 1) & 1U) != 0;
                }
            }
            std::fclose(file);
        }
    }
    int end() {
        out = drain(out_[0]);
        err = drain(err_[0]);
        int status = 0;
        waitpid(pid_, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }

    std::string out;
    std::string err;

private:
    static std::string drain(int fd) {
        std::string text;
        std::array<char, 4096> part{};
        for (ssize_t got = 0; (got = read(fd, part.data(), part.size())) > 0;) {
            text.append(part.data(), static_cast<size_t>(got));
        }
        return text;
    }

    pid_t pid_ = -1;
    int out_[2]{}, err_[2]{};
};

TEST(program, answers_help_and_runs_commands) {
    child help({"plan", "--help"});
    EXPECT_EQ(help.end(), 0);
    EXPECT_THAT(help.out, AllOf(HasSubstr("--max-micro-batch"), HasSubstr("Examples:")));
    child machines({"machines", "--json"});
    EXPECT_EQ(machines.end(), 0);
    EXPECT_EQ(machines.out.front(), '{');
    EXPECT_THAT(machines.err, IsEmpty());
}

TEST(program, wrong_usage_is_status_2_and_failed_work_status_1) {
    child wrong({"plan", "--micro-batch", "x"});
    EXPECT_EQ(wrong.end(), 2);
    EXPECT_THAT(wrong.out, IsEmpty());
    EXPECT_THAT(wrong.err, HasSubstr("--micro-batch \"x\""));
    child failed({"plan", "--model", "llama-3.1-405b", "--device-bytes", "1GiB"});
    EXPECT_EQ(failed.end(), 1);
    EXPECT_THAT(failed.err, HasSubstr("does not fit"));
}

TEST(program, an_interrupt_ends_it_with_status_130_and_no_half_result) {
    child long_search({"plan", "--model", "llama-3.1-405b", "--micro-batch", "2", "--sequence", "8192", "--shards",
                       "128", "--format", "fp4", "--device-bytes", "150GiB", "--effort", "1000", "--json"});
    long_search.wait_until_it_catches(SIGINT);
    long_search.interrupt();
    EXPECT_EQ(long_search.end(), 130);
    EXPECT_THAT(long_search.out, IsEmpty());
    EXPECT_THAT(long_search.err, HasSubstr("interrupted"));
}

}  // namespace
}  // namespace ebb::cli
