#!/usr/bin/env bash
# Installs the Debian packages that a build needs, and only those that are missing. As root it asks nothing; otherwise it
# prints the command to run and fails. Quiet when nothing is missing. The Python packages of cmake/python_requirements.txt
# go into an environment of their own, build/venv, and a CUDA toolkit, where the system has none, into build/cuda.
set -euo pipefail

usage() {
    cat <<'TEXT'
usage: bash cmake/setup.sh [GROUP...]

Groups of packages (default: build):
  build  compiler, CMake, Ninja, ccache, Python and the libraries: programs, tests and benchmarks
  python what tests in Python need: the solver of the linear programs that plans are compared with
  plugins
         what the Python package is compiled with
  cuda   the CUDA toolkit, unless there is one of version 13 or newer: in CUDAToolkit_ROOT, CUDA_PATH, PATH or
         /usr/local/cuda. It is 280 MB, from Python packages; builds find it by CUDAToolkit_ROOT=build/cuda
  ci     the second compiler with its sanitizers, clang-format and clang-tidy; large
TEXT
}

packages_of() {
    case $1 in
        build)
            echo g++ cmake ninja-build ccache python3 libfmt-dev nlohmann-json3-dev libcli11-dev libeigen3-dev \
                libgtest-dev libgmock-dev libbenchmark-dev
            ;;
        python | cuda) echo python3 python3-venv ;;
        plugins) echo python3 python3-dev python3-venv ;;
        ci) echo clang-14 libclang-rt-14-dev clang-tidy-14 clang-format-14 ;;
        *) return 1 ;;
    esac
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=$root/build/venv
requirements=$root/cmake/python_requirements.txt
cuda=$root/build/cuda
cuda_requirements=$root/cmake/cuda_requirements.txt

# Complete when the list that it was made from is today's.
make_venv() {
    if cmp -s "$requirements" "$venv/made_from.txt"; then
        return
    fi
    echo "Making build/venv with $(grep -v '^#' "$requirements" | tr '\n' ' ')"
    run python3 -m venv --clear "$venv"
    run "$venv/bin/python3" -m pip install --quiet --disable-pip-version-check --requirement "$requirements"
    cp "$requirements" "$venv/made_from.txt"
}

toolkit_is_recent() { # NVCC
    local release
    release=$("$1" --version 2>/dev/null | sed -n 's/^.*release \([0-9]*\)\..*$/\1/p') || return 1
    [ "${release:-0}" -ge 13 ]
}

system_has_toolkit() {
    local folder
    for folder in "${CUDAToolkit_ROOT:+$CUDAToolkit_ROOT/bin}" "${CUDA_PATH:+$CUDA_PATH/bin}" \
        "$(dirname "$(command -v nvcc || echo /)")" /usr/local/cuda/bin; do
        if [ -n "$folder" ] && toolkit_is_recent "$folder/nvcc"; then
            return
        fi
    done
    return 1
}

# As a toolkit is laid out: the packages have neither the names that a linker looks for nor lib64.
make_cuda() {
    if system_has_toolkit || cmp -s "$cuda_requirements" "$cuda/made_from.txt"; then
        return
    fi
    make_venv
    echo "Making build/cuda, a CUDA toolkit, with $(grep -v '^#' "$cuda_requirements" | tr '\n' ' ')"
    rm -rf "$cuda" "$cuda.packages"
    run "$venv/bin/python3" -m pip install --quiet --disable-pip-version-check --no-deps --target "$cuda.packages" \
        --requirement "$cuda_requirements"
    mv "$cuda.packages/nvidia/cu13" "$cuda"
    rm -rf "$cuda.packages"
    ln -s lib "$cuda/lib64"
    ln -s libcudart.so.13 "$cuda/lib/libcudart.so"
    cp "$cuda_requirements" "$cuda/made_from.txt"
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
run() {
    if ! "$@" >"$log" 2>&1; then
        cat "$log" >&2
        echo "setup.sh: failed: $*" >&2
        exit 1
    fi
}

installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

missing=()
python=no
toolkit=no
for group in "${@:-build}"; do
    if [ "$group" = --help ] || [ "$group" = -h ]; then
        usage
        exit 0
    fi
    if ! packages=$(packages_of "$group"); then
        echo "setup.sh: no group '$group'" >&2
        usage >&2
        exit 2
    fi
    if [ "$group" = python ]; then
        python=yes
    fi
    if [ "$group" = cuda ]; then
        toolkit=yes
    fi
    for package in $packages; do
        if ! command -v dpkg-query >/dev/null; then
            missing+=("$package")
        elif ! installed "$package"; then
            missing+=("$package")
        fi
    done
done
finish() {
    if [ $python = yes ]; then
        make_venv
    fi
    if [ $toolkit = yes ]; then
        make_cuda
    fi
    exit 0
}
if [ ${#missing[@]} -eq 0 ]; then
    finish
fi

if ! command -v apt-get >/dev/null; then
    echo "setup.sh: this system has no apt-get; install what these Debian packages hold: ${missing[*]}" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "setup.sh: packages are missing, and installing them takes root. Run this, then try again:" >&2
    echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 1
fi

export DEBIAN_FRONTEND=noninteractive
run apt-get update
# apt-get's own words on how much it will fetch and fill, before it does.
size=$(apt-get install --no-install-recommends --assume-no "${missing[@]}" 2>/dev/null |
    grep -E '^(Need to get|After this operation)' | tr '\n' ' ' || true)
echo "Installing ${missing[*]}. ${size}"
run apt-get install -y --no-install-recommends "${missing[@]}"
finish
