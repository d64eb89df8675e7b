#!/usr/bin/env bash
# The main job for a few seconds with every engine this machine has, and a corrupted byte that must be found.
source "$(dirname "$0")/lib.sh"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

step build cargo build --release --quiet -p io-engine
engine="$target/release/io-engine"

# job ENGINE: four jobs, random reads and writes, verified; the figures must be there.
job() {
    "$engine" --engine "$1" --json --runtime 3 --size 64M --rw randrw --verify sha512 \
        --numjobs 4 --iodepth 16 >"$scratch/$1.json"
    cat "$scratch/$1.json"
    grep -Eq '"verify_errors": *0[,}]?' "$scratch/$1.json"
    grep -Eq '"read_iops": *[0-9.]*[1-9]' "$scratch/$1.json"
    grep -Eq '"write_iops": *[0-9.]*[1-9]' "$scratch/$1.json"
}

# corrupted: one flipped byte between a write run and a read run ends in status 1.
corrupted() {
    local file="$scratch/data" status=0
    local options=(--filename "$file" --size 4M --bs 4k --verify sha256 --runtime 1 --engine psync)
    "$engine" "${options[@]}" --rw write --json >/dev/null
    # The file offset 70000 lies in the data of its block.
    local old
    old="$(od -An -tu1 -j 70000 -N 1 "$file" | tr -d ' ')"
    printf "$(printf '\\%03o' $((old ^ 1)))" | dd of="$file" bs=1 seek=70000 conv=notrunc status=none
    "$engine" "${options[@]}" --rw read --json >/dev/null 2>"$scratch/errors" || status=$?
    cat "$scratch/errors"
    [ "$status" = 1 ]
}

step psync job psync
if "$engine" --engine io_uring --size 1M --runtime 0.1 --json >/dev/null 2>"$scratch/why"; then
    step io_uring job io_uring
else
    skip io_uring "$(head -n 1 "$scratch/why")"
fi
step corrupted corrupted
step default "$engine" --runtime 2
