#!/usr/bin/env bash
# benchmarks/gpu/run_all.sh builds from what bundle.sh gathers and nothing else: both are run here, the build where the
# system's own copies are hidden and no network is there; and so the Python package, beside the PyTorch of the virtual
# environment of its tests (plugins/venv.sh). Needs root, for a mount namespace; takes minutes.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"

fail() {
    echo "bundle_build_test: $1" >&2
    exit 1
}

hidden_folders=(/usr/include/fmt /usr/include/nlohmann /usr/include/CLI /usr/include/eigen3 /usr/include/gtest
    /usr/include/gmock /usr/include/benchmark /usr/src/googletest /usr/share/eigen3 /usr/share/cmake
    /usr/lib/x86_64-linux-gnu/cmake)
hidden_files='/usr/lib/x86_64-linux-gnu/lib@(gtest|gmock|fmt|benchmark)*'

# What the bundle brings for the Python package, and the package itself.
hidden_packages=(scikit_build_core packaging pathspec ebb)

inside() { # PYTHON
    local empty header python=$1 package
    empty=$(mktemp -d)
    for folder in "${hidden_folders[@]}"; do
        if [ -d "$folder" ]; then
            mount --bind "$empty" "$folder"
        fi
    done
    shopt -s extglob nullglob
    # shellcheck disable=SC2086: a pattern
    for file in $hidden_files; do
        mount --bind /dev/null "$(readlink -f "$file")" 2>/dev/null || true
    done
    for header in fmt/format.h nlohmann/json.hpp CLI/CLI.hpp eigen3/Eigen/Core Eigen/Core gtest/gtest.h gmock/gmock.h \
        benchmark/benchmark.h cudnn_frontend.h; do
        if echo "#include <$header>" | c++ -fsyntax-only -x c++ - 2>/dev/null; then
            fail "<$header> is still there: nothing is proved"
        fi
    done
    if awk 'NR > 2 && $1 != "lo:"' /proc/net/dev | grep -q .; then
        fail "there is a network: nothing is proved"
    fi
    bash benchmarks/gpu/run_all.sh --build-only

    site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    for package in "${hidden_packages[@]}"; do
        [ -d "$site/$package" ] || fail "$package is not in $site: what this hides has moved"
        mount --bind "$empty" "$site/$package"
    done
    # As on the GPU machine, where the Python with PyTorch is the first one.
    PATH=$(dirname "$python"):$PATH bash benchmarks/gpu/run_all.sh --plugin torch --build-only
    export PYTHONPATH=$root/build/gpu/python
    "$python" - <<'TEXT'
import os, scikit_build_core, ebb.torch
for package in (scikit_build_core, ebb):
    assert package.__file__.startswith(os.environ["PYTHONPATH"]), package.__file__
TEXT
    # As far as it can here: the comparison of ways to train a decoder, on the CPU.
    "$python" benchmarks/torch/decoder_modes.py --layers 2 --width 64 --context 64 --batch 2 --warm-up 2 --steps 2 \
        --floor 4096
}

if [ "$(id -u)" -ne 0 ]; then
    fail "run it as root: it hides folders of the system in a mount namespace of its own"
fi
if [ "${1-}" = --inside ]; then
    inside "$2"
    exit
fi

python=$(bash plugins/venv.sh torch)
for variable in $(compgen -v EBB_ || true); do
    unset "$variable"
done
bash benchmarks/gpu/bundle.sh
git check-ignore -q benchmarks/gpu/bundle || fail "git does not ignore benchmarks/gpu/bundle"
rm -rf build/gpu/CMakeCache.txt build/gpu/plugins build/gpu/python  # what an earlier configuration found
unshare --mount --net bash "${BASH_SOURCE[0]}" --inside "$python"

# What was built runs, as far as it can here.
bin=build/gpu/bin
"$bin/link_bench" --device host --size 4KiB --only "d2h alone" --json >/dev/null 2>&1 || fail "link_bench does not run"
for program in gpu_contract gpu_tests; do
    tests=$("$bin/$program" --gtest_list_tests | grep -c '^  ')
    [ "$tests" -gt 10 ] || fail "$program has $tests tests"
    if [ -z "$(compgen -G '/dev/nvidia[0-9]*')" ] && "$bin/$program" 2>/dev/null; then
        fail "$program passes without a GPU"
    fi
done
echo "bundle_build_test: built from the bundle alone"
