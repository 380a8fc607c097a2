#!/usr/bin/env bash
# Builds for the GPU of this machine, tests and measures Ebb on it. See --help; the parts stand in run_all.py.
exec python3 "$(dirname "${BASH_SOURCE[0]}")/run_all.py" "$@"
