#!/usr/bin/env bash
# The server beside nbdkit and qemu-nbd under fio, in memory and on disk, in one run; two tenants with weights.
# By hand, on a machine that does nothing else: ci/nbd-ratio.sh [ROUNDS [SECONDS [plain|encrypted]]]
source "$(dirname "$0")/lib.sh"
if ! have fio nbdkit qemu-nbd; then
    skip nbd-ratio "fio, nbdkit or qemu-nbd is missing"
    exit 0
fi
step build cargo build --release --quiet -p nbd-export
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
head -c 64 /dev/urandom >"$scratch/key"
program="$(realpath "$target/release/nbd-export")"
only="${3:-all}"
[ "$only" = encrypted ] || step nbd-ratio python3 ci/nbd/ratio.py "$program" "$scratch" "${TMPDIR:-/tmp}" "${1:-3}" "${2:-3}"
[ "$only" = plain ] || step nbd-ratio-encrypted python3 ci/nbd/ratio.py "$program" "$scratch" "${TMPDIR:-/tmp}" "${1:-3}" "${2:-3}" \
    "$scratch/key"
