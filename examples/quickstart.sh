#!/usr/bin/env bash
# Installs what is missing, builds Ebb and trains a small transformer in six ways. See --help.
set -euo pipefail

usage() {
    cat <<'TEXT'
usage: bash examples/quickstart.sh [OPTION...]

On Debian 12: installs the packages that are missing (as root; otherwise says which), builds the release preset into
build/release, and compares six ways to keep a transformer's activations: on the device, computed again, and offloaded
to host memory by Ebb in four ways. The device is Ebb's host device; no GPU is needed. Takes a few minutes on two
cores, and less the second time.

Options go to the comparison: see build/release/bin/train_transformer --help.
TEXT
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
for argument in "$@"; do
    if [ "$argument" = --help ] || [ "$argument" = -h ]; then
        usage
        exit 0
    fi
done

cd "$root"
# Notes go to standard error: with --json, standard output is the comparison's alone.
note() { printf '== %s\n' "$*" >&2; }

note "packages: installing what is missing"
bash cmake/setup.sh >&2

note "building the release preset into build/release"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
build() {
    cmake --preset release --log-level=WARNING && cmake --build --preset release --target train_transformer
}
if [ -t 2 ]; then
    build >&2
elif ! build >"$log" 2>&1; then
    cat "$log" >&2
    exit 1
fi

note "training in every mode: build/release/bin/train_transformer $*"
status=0
build/release/bin/train_transformer "$@" || status=$?
exit $status
