#!/usr/bin/env bash
# Tests of the Python package with the real frameworks. See --help.
set -euo pipefail

usage() {
    cat <<'TEXT'
usage: bash tests/plugins/run.sh torch|jax [PYTEST_ARGUMENT...]

Makes a virtual environment outside the tree once (EBB_VENVS, default ~/.cache/ebb/venvs; keyed by the pinned
requirements), installs ./plugins into it, and runs the tests of that framework on the CPU with pytest.
PyTorch takes about 5 GB there, JAX 0.6 GB.
TEXT
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
framework=${1:---help}
case $framework in
    torch | jax) shift ;;
    --help | -h)
        usage
        exit 0
        ;;
    *)
        echo "run.sh: no framework '$framework'" >&2
        usage >&2
        exit 2
        ;;
esac

requirements=$root/plugins/${framework}_requirements.txt
key=$(sha256sum "$requirements" | cut -c1-12)
venv=${EBB_VENVS:-${XDG_CACHE_HOME:-$HOME/.cache}/ebb/venvs}/$framework-$key
if [ ! -e "$venv/complete" ]; then
    echo "Making $venv with $(grep -v '^#' "$requirements" | tr '\n' ' ')"
    python3 -m venv --clear "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$requirements"
    touch "$venv/complete"
fi

# Isolation would fetch the build backend again, which is there.
export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
"$venv/bin/pip" install --quiet --disable-pip-version-check --no-build-isolation --no-deps --force-reinstall \
    "$root/plugins"
cd "$root/tests/plugins"
exec "$venv/bin/python" -m pytest -p no:cacheprovider -q "$framework" "$@"
