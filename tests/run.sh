#!/usr/bin/env bash
# Installs what is missing, builds, and runs the tests. See --help.
set -euo pipefail

usage() {
    cat <<'TEXT'
usage: bash tests/run.sh [--core | --plugins | --ci]

Installs the Debian packages that are missing (as root; otherwise says which), builds the release preset into
build/release and runs all tests but those that need a GPU (benchmarks/gpu/run_all.sh runs those). Ends with CTest's
summary.

  --core  the C++ tests alone
  --plugins
          all tests, then those of the Python package with real PyTorch and JAX, which take 5.6 GB outside the tree
  --ci    all of these, then also: address and undefined-behaviour sanitizers by the second compiler, and by it what they
          leave out; the thread sanitizer, clang-format, clang-tidy, and the build from the bundle for GPU machines (as root:
          in a mount namespace); prints one line for each of them at the end. Installs a CUDA toolkit where there is none
  --help  this text

Exit status: 0 all passed, 1 something failed, 2 wrong usage.
TEXT
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mode=all
for argument in "$@"; do
    case $argument in
        --core) mode=core ;;
        --plugins) mode=plugins ;;
        --ci) mode=ci ;;
        --help | -h)
            usage
            exit 0
            ;;
        *)
            echo "run.sh: unknown argument '$argument'" >&2
            usage >&2
            exit 2
            ;;
    esac
done

cd "$root"
jobs=$(nproc)
# Tests say what they set; what is set outside must not decide whether they pass.
for variable in $(compgen -v EBB_ || true); do
    unset "$variable"
done

quiet=()
if [ ! -t 1 ]; then
    quiet=(-- --quiet)
fi

build() { # PRESET [TARGET]
    echo "== build $1"
    cmake --preset "$1" --log-level=WARNING >/dev/null
    cmake --build --preset "$1" ${2:+--target "$2"} --parallel "$jobs" "${quiet[@]}"
}

# On a machine without a GPU tests of it fail: nothing here asks for them.
run_tests() { # PRESET [LABELS_LEFT_OUT]
    echo "== test $1"
    # Not by the preset: its filter and this one would leave out only what both do.
    ctest --test-dir "build/$1" --output-on-failure --no-tests=error --parallel "$jobs" --progress \
        --label-exclude "^(${2:+$2|}gpu)\$"
}

run_plugins() {
    echo "== test plugins"
    bash tests/plugins/run.sh all
}

# Where cmake/setup.sh cuda has installed one, the system has none.
use_installed_toolkit() {
    if [ -x build/cuda/bin/nvcc ]; then
        export CUDAToolkit_ROOT=$root/build/cuda
    fi
}

if [ "$mode" != ci ]; then
    if [ "$mode" = core ]; then
        bash cmake/setup.sh build
    else
        bash cmake/setup.sh build python
    fi
    if [ "$mode" = plugins ]; then
        bash cmake/setup.sh plugins
    fi
    use_installed_toolkit
    build release
    if [ "$mode" = core ]; then
        run_tests release python
    else
        run_tests release
    fi
    if [ "$mode" = plugins ]; then
        run_plugins
    fi
    exit
fi

# What a sanitizer build cannot say anything about: nested builds, headers, scripts. Of these the second compiler has the
# headers.
not_sanitized='consumer|layout|abi|python'
# Nor the thread sanitizer about what has one thread only, or forks; models of a whole GPU also take more address space than it
# leaves. Of the properties captures alone have threads.
one_thread='consumer|layout|abi|python|unit/cuda|property|published|sim|unit/(model|policy|schedule|observe)|(step|examples)_math'

check_format() {
    # The C header is laid out by hand: its comments stand beside what they explain. What is bundled is not ours.
    find . \( -name build -o -name .git -o -path ./benchmarks/gpu/bundle -o -path ./include/ebb/ebb.h \) -prune -o -regex '.*\.[ch]\(pp\)?' -print0 |
        xargs -0 clang-format-14 --dry-run -Werror
}
check_release() {
    build release
    run_tests release
}
check_asan_ubsan() {
    build asan-ubsan
    run_tests asan-ubsan "$not_sanitized"
}
check_tsan() {
    build tsan
    run_tests tsan "$one_thread"
    ctest --test-dir build/tsan --output-on-failure --no-tests=error --parallel "$jobs" --progress \
        --tests-regex '^property\..*random_captures'
}
# The second compiler makes asan-ubsan, with all its warnings as errors: here only what that leaves out, and each source of
# libebb by itself.
check_clang() {
    build clang not_sanitized
    echo "== test clang"
    ctest --test-dir build/clang --output-on-failure --no-tests=error --parallel "$jobs" --progress \
        --label-regex '^(layout|abi|step_cuda)$'
}
check_tidy() {
    echo "== clang-tidy"
    # Its count of the warnings that are not ours is of no use to anybody.
    find src -name '*.cpp' -print0 |
        xargs -0 -n 1 -P "$jobs" clang-tidy-14 -p build/clang --quiet --warnings-as-errors='*' 2>&1 |
        { grep -v ' warnings* generated\.$' || true; }
}
check_plugins() {
    run_plugins
}
check_bundle() {
    echo "== build from the bundle for GPU machines"
    bash tests/gpu/bundle_build_test.sh
}

# What failed, once more at the very end: the rest of the output is long.
show_failures() { # CHECK
    local last=build/${1//_/-}/Testing/Temporary
    if [ ! -s "$last/LastTestsFailed.log" ]; then
        tail -n 40 "build/ci/$1.log"
        return
    fi
    cut -d: -f2- "$last/LastTestsFailed.log" | while IFS= read -r name; do
        echo "-- $1: $name"
        awk -v name="$name" '
            { at = index($0, " Testing: " name) }
            at > 0 && at == length($0) - length(" Testing: " name) + 1 { on = 1 }
            on
            / end time: / { on = 0 }' "$last/LastTest.log" | tail -n 40
    done
}

bash cmake/setup.sh build python plugins cuda ci
use_installed_toolkit
mkdir -p build/ci
rm -f build/*/Testing/Temporary/LastTestsFailed.log
failed=()
summary=()
for check in format release plugins asan_ubsan tsan clang tidy bundle; do
    started=$SECONDS
    # In a shell of its own with -e: as the condition of an if, a failing command would not end the function.
    set +e
    (
        set -e -o pipefail
        "check_$check" 2>&1 | tee "build/ci/$check.log"
    )
    status=$?
    set -e
    word=passed
    if [ $status -ne 0 ]; then
        word=FAILED
        failed+=("$check")
    fi
    summary+=("$(printf '%-12s %s in %d s' "$check" "$word" $((SECONDS - started)))")
done
echo
for check in "${failed[@]}"; do
    show_failures "$check"
done
printf '%s\n' "${summary[@]}"
printf '%-12s %s\n' gpu 'not run: tests labelled gpu need one; bash benchmarks/gpu/run_all.sh runs them, and with --plugin torch those of the package'
[ ${#failed[@]} -eq 0 ]
