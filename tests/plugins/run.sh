#!/usr/bin/env bash
# Tests of the Python package with the real frameworks. See --help.
set -euo pipefail

frameworks=(torch jax)

usage() {
    cat <<'TEXT'
usage: bash tests/plugins/run.sh torch|jax|all [PYTEST_ARGUMENT...]

Installs ./plugins into the virtual environment of that framework (plugins/venv.sh: outside the tree, made once; PyTorch takes
about 5 GB there, JAX 0.6 GB) and runs its tests with pytest; all: of both at the same time. Tests marked gpu are left out
where there is no GPU, and a line says so; asked for with -m gpu they fail there.
TEXT
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
framework=${1:---help}
if [ "$framework" = --help ] || [ "$framework" = -h ]; then
    usage
    exit 0
fi
if [ "$framework" != all ] && [[ " ${frameworks[*]} " != *" $framework "* ]]; then
    echo "run.sh: no framework '$framework'" >&2
    usage >&2
    exit 2
fi
shift

run() { # FRAMEWORK PYTHON [PYTEST_ARGUMENT...]
    local of=$1 python=$2
    shift 2
    cd "$root/tests/plugins"
    "$python" -m pytest -p no:cacheprovider -q "$of" "$@"
}

if [ "$framework" != all ]; then
    run "$framework" "$(bash "$root/plugins/venv.sh" "$framework")" "$@"
    exit
fi

# Installed one after the other, since they are built in one folder; then each runs on a processor of its own.
torch=$(bash "$root/plugins/venv.sh" torch)
jax=$(bash "$root/plugins/venv.sh" jax)
said=$(mktemp)
trap 'rm -f "$said"' EXIT
run jax "$jax" "$@" >"$said" 2>&1 &
status=0
(run torch "$torch" "$@") || status=$?
wait $! || status=$?
cat "$said"
exit "$status"
