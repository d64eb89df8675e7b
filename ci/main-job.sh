#!/usr/bin/env bash
# The main job for a few seconds with every engine this machine has, and a corrupted byte that must be found.
source "$(dirname "$0")/lib.sh"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

# Several commands in a function that `step` calls: bash does not stop at the first that fails there, so
# they are chained.
engine() {
    cargo run --release --quiet -p io-engine -- "$@"
}

# job ENGINE: four jobs, random reads and writes, verified; the figures must be there.
job() {
    local figures="$scratch/$1.json"
    engine --engine "$1" --json --runtime 3 --size 64M --rw randrw --verify sha512 \
        --numjobs 4 --iodepth 16 >"$figures" &&
        cat "$figures" &&
        grep -Eq '"verify_errors": *0[,}]' "$figures" &&
        grep -Eq '"read_iops": *[0-9.]*[1-9]' "$figures" &&
        grep -Eq '"write_iops": *[0-9.]*[1-9]' "$figures"
}

# shared ENGINE: tenants share tags, blocks are split, completions are steered, one job polls.
shared() {
    local figures="$scratch/shared-$1.json"
    engine --engine "$1" --json --runtime 2 --size 64M --bs 64k --max-split 16 --rw randrw --verify crc32c \
        --numjobs 4 --tenants 2 --iodepth 16 --admission whole_io --steering same_cpu --poll 1 >"$figures" &&
        cat "$figures" &&
        grep -Eq '"verify_errors": *0[,}]' "$figures" &&
        grep -Eq '"policy": *"same_cpu"' "$figures" &&
        grep -Eq '"name": *"tenant-1"' "$figures" &&
        grep -Eq '"read_iops": *[0-9.]*[1-9]' "$figures"
}

# corrupted ENGINE: one flipped byte between a write run and a read run ends in status 1 and names the offset.
corrupted() {
    local file="$scratch/data" status=0 old
    local options=(--filename "$file" --size 4M --bs 4k --verify sha256 --number_ios 1024 --engine "$1")
    engine "${options[@]}" --rw write --json >"$scratch/written" || return
    # File offset 70000 lies in the data of the block at 69632.
    old="$(od -An -tu1 -j 70000 -N 1 "$file" | tr -d ' ')" || return
    printf '%b' "$(printf '\\0%03o' "$((old ^ 1))")" |
        dd of="$file" bs=1 seek=70000 conv=notrunc status=none || return
    engine "${options[@]}" --rw read --json >"$scratch/read" 2>"$scratch/errors" || status=$?
    cat "$scratch/errors"
    [ "$status" = 1 ] && grep -q 69632 "$scratch/errors"
}

step build cargo build --release --quiet -p io-engine
step psync job psync
step shared-psync shared psync
step corrupted-psync corrupted psync
if engine --engine io_uring --size 1M --number_ios 1 --json >/dev/null 2>"$scratch/why"; then
    step io_uring job io_uring
    step shared-io_uring shared io_uring
    step corrupted-io_uring corrupted io_uring
else
    skip io_uring "$(head -n 1 "$scratch/why")"
fi
step default engine --runtime 2
