#!/usr/bin/env bash
# Builds the release preset and runs benchmarks by name. See --help.
set -euo pipefail

names=(hot_path arena_lifo arena_moe lane_copy sim_ops plan policy train_modes)
# Those that run beside a framework in its virtual environment, by framework.
torch_names=(hook_cost torch_step)
jax_names=(ffi_cost jax_step)

usage() {
    cat <<TEXT
usage: bash benchmarks/run.sh [--quick] [--out FILE.json] [NAME...]

Builds the release preset into build/release, runs the benchmarks and prints each figure beside its baseline from the same
run. Values are medians of interleaved repetitions. Without a name all run that need no framework.

  --quick       fewer and shorter repetitions: a look, not a measurement
  --out FILE    also write the figures and the machine's context as JSON
  --help        this text

Names: ${names[*]}
With PyTorch, and only when named: ${torch_names[*]}. With JAX likewise: ${jax_names[*]}. They take virtual environments outside
the tree (plugins/venv.sh), which are made once: 5 GB and 0.6 GB.

Exit status: 0 done (a target that is not met is a result), 1 something failed, 2 wrong usage.
TEXT
}

wrong() {
    echo "run.sh: $1" >&2
    usage >&2
    exit 2
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
arguments=()
chosen=()
while [ $# -gt 0 ]; do
    case $1 in
        --quick) arguments+=(--quick) ;;
        --out)
            [ $# -ge 2 ] || wrong "--out needs a file"
            folder=$(dirname -- "$2")
            [ -d "$folder" ] && [ ! -d "$2" ] || wrong "--out $2 is not a file in a folder that exists"
            arguments+=(--out "$(cd "$folder" && pwd)/$(basename -- "$2")")
            shift
            ;;
        --help | -h)
            usage
            exit 0
            ;;
        -*) wrong "unknown argument '$1'" ;;
        *)
            case " ${names[*]} ${torch_names[*]} ${jax_names[*]} " in
                *" $1 "*) chosen+=("$1") ;;
                *) wrong "unknown benchmark '$1'; there are: ${names[*]} ${torch_names[*]} ${jax_names[*]}" ;;
            esac
            ;;
    esac
    shift
done
if [ ${#chosen[@]} -eq 0 ]; then
    chosen=("${names[@]}")
fi

targets=()
frameworks=()
for name in "${chosen[@]}"; do
    case $name in
        train_modes) targets+=(train_transformer) ;;
        arena_*) targets+=(arena_bench) ;;
        hook_cost | torch_step) frameworks+=(torch) ;;
        ffi_cost | jax_step) frameworks+=(jax) ;;
        *) targets+=("${name}_bench") ;;
    esac
done

cd "$root"
# Standard output is the table's; what the build says goes to standard error.
bash cmake/setup.sh build >&2
if [ ${#targets[@]} -gt 0 ]; then
    cmake --preset release --log-level=WARNING >/dev/null
    cmake --build --preset release --parallel "$(nproc)" --target "${targets[@]}" >&2
fi
if [ ${#frameworks[@]} -gt 0 ]; then
    bash cmake/setup.sh plugins >&2
    while read -r framework; do
        arguments+=(--python "$framework=$(bash plugins/venv.sh "$framework")")
    done < <(printf '%s\n' "${frameworks[@]}" | sort -u)
fi
# Options from outside would change what is measured.
for variable in $(compgen -v EBB_ || true); do
    unset "$variable"
done
exec python3 benchmarks/figures.py --bin-dir build/release/bin "${arguments[@]}" "${chosen[@]}"
