#!/bin/sh
# check_symbols.sh NM LIBRARY LIST: the names that the library exports are those of the list, no fewer and no more.
set -eu
if [ $# -ne 3 ]; then
    echo "usage: check_symbols.sh NM LIBRARY LIST" >&2
    exit 2
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The version node itself is an absolute symbol (A), not an exported name.
"$1" -D --defined-only "$2" >"$work/nm"
awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' "$work/nm" | LC_ALL=C sort >"$work/exported"
grep -v '^#' "$3" | LC_ALL=C sort >"$work/listed"
LC_ALL=C comm -13 "$work/exported" "$work/listed" | sed 's/^/missing from the library: /' >"$work/faults"
LC_ALL=C comm -23 "$work/exported" "$work/listed" | sed 's/^/exported but not listed: /' >>"$work/faults"
if [ -s "$work/faults" ]; then
    cat "$work/faults"
    exit 1
fi
echo "$(wc -l <"$work/exported") exported names, all listed"
