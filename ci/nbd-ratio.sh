#!/usr/bin/env bash
# The server beside nbdkit and qemu-nbd under fio, in memory and on disk, in one run; two tenants with weights.
# By hand, on a machine that does nothing else: ci/nbd-ratio.sh [ROUNDS [SECONDS [plain|encrypted|weights [ONLY]]]];
# ONLY is a part of the names of the loads to run, "memory, 1M" for instance.
source "$(dirname "$0")/lib.sh"
if ! have fio nbdkit qemu-nbd; then
    skip nbd-ratio "fio, nbdkit or qemu-nbd is missing"
    exit 0
fi
step build cargo build --release --quiet -p nbd-export
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
(umask 077 && head -c 64 /dev/urandom >"$scratch/key")
program="$(realpath "$target/release/nbd-export")"
# ratio NAME PART [KEYFILE]
ratio() {
    step "$1" python3 ci/nbd/ratio.py "$program" "$scratch" "${TMPDIR:-/tmp}" "$rounds" "$seconds" "$2" "$part" "${@:3}"
}

rounds="${1:-3}" seconds="${2:-3}" only="${3:-all}" part="${4:-}"
case "$only" in
    all | plain | encrypted | weights) ;;
    *) echo "$0: '$only' is none of plain, encrypted, weights" >&2; exit 2 ;;
esac
case "$only" in all | plain) ratio nbd-ratio loads ;; esac
case "$only" in all | encrypted) ratio nbd-ratio-encrypted loads "$scratch/key" ;; esac
case "$only" in all | weights) ratio nbd-weights weights ;; esac
