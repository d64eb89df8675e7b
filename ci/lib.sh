# Shared by the scripts here: sourced, not run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CARGO_TERM_COLOR="${CARGO_TERM_COLOR:-never}"
target="${CARGO_TARGET_DIR:-target}"

# step NAME COMMAND...: says what runs, and how long it took.
step() {
    local name="$1" start=$SECONDS
    shift
    printf '\n== %s: %s\n' "$name" "$*"
    "$@" || { printf '== %s FAILED after %s s\n' "$name" "$((SECONDS - start))"; exit 1; }
    printf '== %s ok, %s s\n' "$name" "$((SECONDS - start))"
}

# skip NAME REASON: says what does not run here, and why.
skip() {
    printf '\n== %s SKIPPED: %s\n' "$1" "$2"
}

# have PROGRAM...: whether all of them are there.
have() {
    local program
    for program in "$@"; do command -v "$program" >/dev/null 2>&1 || return 1; done
}

# component NAME [TOOLCHAIN]: whether a component of the toolchain is there or can be had.
component() {
    local toolchain="${2:-}"
    command -v rustup >/dev/null 2>&1 || return 0 # a toolchain of the system: take what it has
    rustup component add "$1" ${toolchain:+--toolchain "$toolchain"} >/dev/null 2>&1
}
