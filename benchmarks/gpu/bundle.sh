#!/usr/bin/env bash
# Gathers what a build takes beside a compiler, CMake and the CUDA toolkit, for a GPU machine that can install nothing.
# See --help.
set -euo pipefail

usage() {
    cat <<'TEXT'
usage: bash benchmarks/gpu/bundle.sh

Run on a machine with Debian packages and PyPI. Gathers headers of fmt, nlohmann json, CLI11, Eigen and cudnn_frontend, the
sources of GoogleTest, and the Python packages that build the Python package in benchmarks/gpu/bundle, which git ignores: take
it along with the working tree.
benchmarks/gpu/run_all.sh builds from it. Prints what it gathered and how large it is; more than 30 MiB is refused.

Google Benchmark is not among it: nothing that runs on the GPU machine is built with it.

Exit status: 0 done, 1 something failed, 2 wrong usage.
TEXT
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
case ${1-} in
    "") ;;
    --help | -h)
        usage
        exit 0
        ;;
    *)
        echo "bundle.sh: unknown argument '$1'" >&2
        usage >&2
        exit 2
        ;;
esac

limit_bytes=$((30 * 1024 * 1024))
cudnn_frontend=1.32.0
# What pip takes to build ./plugins, with all that it depends on; they are Python alone, and any Python takes them.
build_backend=(scikit-build-core==1.1.2 packaging==26.4 pathspec==1.1.1)

cd "$root"
bash cmake/setup.sh build python

bundle=benchmarks/gpu/bundle
made=$(mktemp -d "$root/benchmarks/gpu/bundle.XXXXXX")
downloads=$(mktemp -d)
trap 'rm -rf "$made" "$downloads"' EXIT
mkdir -p "$made/include" "$made/licenses"

fail() {
    echo "bundle.sh: $1" >&2
    exit 1
}
size_of() { # PATH...
    du --summarize --total --bytes "$@" | tail -n 1 | cut -f 1
}
note() { # NAME VERSION PATH...
    local name=$1 version=$2
    shift 2
    echo "$name $version $(size_of "$@")" >>"$made/contents.txt"
}

debian() { # NAME PACKAGE FOLDER: headers as Debian installs them
    local name=$1 package=$2 folder=$3
    [ -d "$folder" ] || fail "$package is installed, but has no $folder"
    cp -r "$folder" "$made/include/"
    cp "/usr/share/doc/$package/copyright" "$made/licenses/$name"
    note "$name" "$(dpkg-query -W -f '${Version}' "$package")" "$made/include/$(basename "$folder")"
}
debian fmt libfmt-dev /usr/include/fmt
debian nlohmann_json nlohmann-json3-dev /usr/include/nlohmann
debian CLI11 libcli11-dev /usr/include/CLI
debian Eigen3 libeigen3-dev /usr/include/eigen3/Eigen

# What its libraries are compiled from, without its own tests and samples.
for part in googletest googlemock; do
    mkdir -p "$made/googletest/$part"
    cp -r "/usr/src/googletest/$part/include" "/usr/src/googletest/$part/src" "$made/googletest/$part/"
done
cp /usr/share/doc/googletest/copyright "$made/licenses/GTest"
note GTest "$(dpkg-query -W -f '${Version}' googletest)" "$made/googletest"

download() { # FOLDER REQUIREMENT...
    local folder=$1
    shift
    build/venv/bin/python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --dest "$folder" "$@"
}
download "$made/wheels" "${build_backend[@]}"
for requirement in "${build_backend[@]}"; do
    name=${requirement%%==*}
    wheel=$(compgen -G "$made/wheels/${name//-/_}-*-none-any.whl") || fail "the wheel of $requirement is not Python alone"
    note "$name" "${requirement##*==}" "$wheel"
done

download "$downloads" "nvidia-cudnn-frontend==$cudnn_frontend"
python3 -m zipfile -e "$downloads"/nvidia_cudnn_frontend-*.whl "$downloads/wheel"
cp -r "$downloads"/wheel/include/* "$made/include/"
cat "$downloads"/wheel/nvidia_cudnn_frontend-*.dist-info/licenses/* >"$made/licenses/cudnn_frontend"
note cudnn_frontend "$cudnn_frontend" "$made"/include/cudnn_frontend*

total_bytes=$(size_of "$made")
awk '{ printf "%-16s %-16s %8.2f MiB\n", $1, $2, $3 / 1048576 }' "$made/contents.txt"
awk -v total="$total_bytes" 'BEGIN { printf "%-16s %-16s %8.2f MiB\n", "all", "", total / 1048576 }'
if [ "$total_bytes" -gt "$limit_bytes" ]; then
    fail "the bundle has $total_bytes bytes, more than $limit_bytes; it was not written"
fi
# Which state of the project it goes with: the working tree may arrive without its history.
git describe --always --dirty >"$made/commit.txt" 2>/dev/null || echo unknown >"$made/commit.txt"
chmod 755 "$made"
rm -rf "$bundle"
mv "$made" "$bundle"
echo "in $bundle"
