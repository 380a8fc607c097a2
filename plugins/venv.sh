#!/usr/bin/env bash
# Where the Python package runs beside a real framework. See --help.
set -euo pipefail

usage() {
    cat <<'TEXT'
usage: bash plugins/venv.sh FRAMEWORK

Makes a virtual environment outside the tree once (in ~/.cache/ebb/venvs, or that of XDG_CACHE_HOME; keyed by the pinned
plugins/FRAMEWORK_requirements.txt), installs ./plugins into it anew, and prints the path of its Python. What else there
is to say goes to standard error. PyTorch takes about 5 GB there.
TEXT
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
framework=${1:---help}
if [ "$framework" = --help ] || [ "$framework" = -h ]; then
    usage
    exit 0
fi
requirements=$root/plugins/${framework}_requirements.txt
if [ $# -ne 1 ] || [ ! -f "$requirements" ]; then
    echo "venv.sh: no framework '$*': there is no $requirements" >&2
    usage >&2
    exit 2
fi

key=$(sha256sum "$requirements" | cut -c1-12)
venv=${XDG_CACHE_HOME:-$HOME/.cache}/ebb/venvs/$framework-$key
python=$venv/bin/python
if [ ! -e "$venv/complete" ]; then
    echo "Making $venv with $(grep -v '^#' "$requirements" | tr '\n' ' ')" >&2
    python3 -m venv --clear "$venv" >&2
    "$python" -m pip install --quiet --disable-pip-version-check --requirement "$requirements" >&2
    touch "$venv/complete"
fi

# Isolation would fetch the build backend again, which is there.
if command -v ccache >/dev/null; then
    export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
fi
"$python" -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --force-reinstall \
    "$root/plugins" >&2
echo "$python"
