#!/usr/bin/env bash
# Tests of the Python package with the real frameworks. See --help.
set -euo pipefail

usage() {
    cat <<'TEXT'
usage: bash tests/plugins/run.sh torch|jax [PYTEST_ARGUMENT...]

Installs ./plugins into the virtual environment of that framework (plugins/venv.sh: outside the tree, made once; PyTorch
takes about 5 GB there, JAX 0.6 GB) and runs its tests with pytest. Tests marked gpu are left out where there is no GPU, and a line
says so; asked for with -m gpu they fail there.
TEXT
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
framework=${1:---help}
case $framework in
    --help | -h)
        usage
        exit 0
        ;;
esac
if [ ! -d "$root/tests/plugins/$framework" ]; then
    echo "run.sh: no framework '$framework'" >&2
    usage >&2
    exit 2
fi
shift

python=$(bash "$root/plugins/venv.sh" "$framework")
cd "$root/tests/plugins"
exec "$python" -m pytest -p no:cacheprovider -q "$framework" "$@"
