#!/bin/sh
# check_symbols_test.sh NM LIBRARY FOLDER: the check fails for a name too many in the list, for one too few, and for
# a library that is not there.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

must_fail() { # EXPECTED_TEXT LIBRARY LIST
    if sh "$folder/check_symbols.sh" "$nm" "$2" "$3" >"$work/out" 2>&1; then
        echo "the check passed where it must say: $1"
        exit 1
    fi
    if ! grep -q "$1" "$work/out"; then
        echo "the check failed without saying: $1"
        cat "$work/out"
        exit 1
    fi
}

nm=$1
folder=$3
{ cat "$folder/symbols.txt"; echo ebb_not_there; } >"$work/longer"
must_fail '^missing from the library: ebb_not_there$' "$2" "$work/longer"
grep -v '^ebb_offload$' "$folder/symbols.txt" >"$work/shorter"
must_fail '^exported but not listed: ebb_offload$' "$2" "$work/shorter"
must_fail 'no_such_library' "$work/no_such_library.so" "$folder/symbols.txt"
