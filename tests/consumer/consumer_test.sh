#!/bin/sh
# consumer_test.sh HOW LINKAGE SOURCE BUILD WORK: a program outside this project builds with Ebb and runs.
#   HOW      find_package (installed to a prefix with a space) or add_subdirectory
#   LINKAGE  shared or static
#   BUILD    this project's own build, installed for find_package shared; static is configured and built here
# CC, CXX and EBB_LAUNCHER name the compilers and, if there is one, the compiler cache. EBB_WITH_CUDA is 1 where the CUDA
# backend is built.
set -eu
how=$1
linkage=$2
source=$3
build=$4
work="$5/$how $linkage"

rm -rf "$work"
mkdir -p "$work"
set -- -G Ninja "-DCMAKE_C_COMPILER=$CC" "-DCMAKE_CXX_COMPILER=$CXX" "-DCMAKE_BUILD_TYPE=" \
    "-DEBB_WARNINGS_AS_ERRORS=OFF"
if [ -n "${EBB_LAUNCHER:-}" ]; then
    set -- "$@" "-DCMAKE_C_COMPILER_LAUNCHER=$EBB_LAUNCHER" "-DCMAKE_CXX_COMPILER_LAUNCHER=$EBB_LAUNCHER"
fi
case $linkage in
    shared) shared=ON ;;
    static) shared=OFF ;;
    *) echo "linkage is $linkage; give shared or static" >&2; exit 2 ;;
esac

install_ebb() {
    if [ "$linkage" = static ]; then
        build="$work/ebb build"
        cmake -S "$source" -B "$build" "$@" -DBUILD_SHARED_LIBS=OFF -DEBB_BUILD_TESTS=OFF -DEBB_BUILD_EXAMPLES=OFF \
            -DEBB_BUILD_BENCHMARKS=OFF -DEBB_BUILD_PROGRAM=OFF
        cmake --build "$build" --target ebb
    fi
    cmake --install "$build" --prefix "$work/prefix"
    # Moved: nothing in it may name where it was installed.
    mv "$work/prefix" "$work/moved prefix"
    if grep -rniE 'fmt|nlohmann|CLI11' "$work/moved prefix/"*/cmake "$work/moved prefix/"*/*/cmake 2>/dev/null; then
        echo "the package asks its users for a library that is only used inside" >&2
        exit 1
    fi
}

case $how in
    find_package)
        install_ebb "$@"
        component=
        if [ "$EBB_WITH_CUDA" = 1 ]; then
            component=cuda
        fi
        cmake -S "$source/tests/consumer/find_package" -B "$work/build" "$@" "-DCMAKE_PREFIX_PATH=$work/moved prefix" \
            "-DEBB_COMPONENT=$component"
        ;;
    add_subdirectory)
        cmake -S "$source/tests/consumer/add_subdirectory" -B "$work/build" "$@" "-DEBB_SOURCE=$source" \
            "-DBUILD_SHARED_LIBS=$shared"
        ;;
    *) echo "how is $how; give find_package or add_subdirectory" >&2; exit 2 ;;
esac
cmake --build "$work/build" --target consumer
"$work/build/consumer" >"$work/output.txt"
cat "$work/output.txt"

# The backend is found where it was put, and nowhere is what was not built.
case "$(cat "$work/output.txt")" in
    *" cuda") has_cuda=1 ;;
    *) has_cuda=0 ;;
esac
if [ "$has_cuda" != "$EBB_WITH_CUDA" ]; then
    echo "the library's devices are not those that were built (EBB_WITH_CUDA=$EBB_WITH_CUDA)" >&2
    exit 1
fi

# The linkage that was asked for is the one that was built.
if ldd "$work/build/consumer" | grep -q 'libebb\.so'; then
    found=shared
else
    found=static
fi
if [ "$found" != "$linkage" ]; then
    echo "the program is linked $found, not $linkage" >&2
    exit 1
fi
