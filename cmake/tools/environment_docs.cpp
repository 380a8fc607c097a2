// Prints docs/environment.md. With --check FILE: exit status 1 unless the file holds just that.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "base/config.hpp"

int main(int argc, char **argv) {
    const std::string docs = ebb::environment_docs();
    if (argc == 1) {
        return std::fwrite(docs.data(), 1, docs.size(), stdout) == docs.size() ? 0 : 1;
    }
    if (argc != 3 || std::strcmp(argv[1], "--check") != 0) {
        std::fprintf(stderr, "usage: ebb_environment_docs [--check FILE]\n");
        return 2;
    }
    std::ifstream file(argv[2]);
    const std::string held{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (!file || held != docs) {
        std::fprintf(stderr, "%s is not what the table of options gives; run: ebb_environment_docs > %s\n", argv[2],
                     argv[2]);
        return 1;
    }
    return 0;
}
