#!/usr/bin/env bash
# Strangers' clients against the server: fio, nbdcopy, qemu-img, qemu-io and libnbd, with both engines, with
# and without encryption; and what a killed server has kept. Needs Debian's packages, which it installs.
source "$(dirname "$0")/lib.sh"
if ! have qemu-io qemu-img nbdcopy fio || ! /usr/bin/python3 -c 'import nbd' 2>/dev/null; then
    if ! { apt-get update && apt-get install -y --no-install-recommends \
        fio nbdkit libnbd-bin python3-libnbd qemu-utils; } >/dev/null 2>&1; then
        skip nbd "fio, libnbd-bin, python3-libnbd and qemu-utils cannot be installed"
        exit 0
    fi
fi
step build cargo build --release --quiet -p nbd-export
program="$PWD/$target/release/nbd-export"
[ -x "$program" ] || program="$target/release/nbd-export"
scratch="$(mktemp -d)"
server=""
trap '[ -z "$server" ] || kill -9 "$server" 2>/dev/null; rm -rf "$scratch"' EXIT
size=$((64 << 20))
socket="$scratch/nbd.sock"
uri="nbd+unix:///disk?socket=$socket"
(umask 077 && head -c 64 /dev/urandom >"$scratch/key")

# start OPTIONS...: a server whose export "disk" is fresh unless it is told to stay.
start() {
    rm -f "$socket"
    "$program" --unix "$socket" --quiet "$@" 2>>"$scratch/log" &
    server=$!
    for _ in $(seq 100); do
        [ -S "$socket" ] && return 0
        sleep 0.05
    done
    cat "$scratch/log"
    return 1
}

stop() {
    local status=0
    kill -TERM "$server"
    wait "$server" || status=$?
    server=""
    return "$status"
}

# fio_verifies JOBS: random reads and writes, each block checked.
fio_verifies() {
    (cd "$scratch" && timeout 120 fio --name=verify --ioengine=nbd --uri="$uri" --rw=randrw --bs=4k --iodepth=64 \
        --numjobs="$1" --size=$((size / $1)) --offset_increment=$((size / $1)) --io_size=8M \
        --verify=sha512 --verify_fatal=1 --group_reporting --output="$scratch/fio" &&
        grep -E "read:|write:" "$scratch/fio") || { cat "$scratch/fio"; return 1; }
}

copies() {
    head -c "$size" /dev/urandom >"$scratch/there" &&
        nbdcopy "$scratch/there" "$uri" && nbdcopy "$uri" "$scratch/back" &&
        cmp "$scratch/there" "$scratch/back" &&
        qemu-img create -q -f qcow2 "$scratch/image.qcow2" "$size" &&
        qemu-io -c 'write -P 5 1M 3M' "$scratch/image.qcow2" >/dev/null &&
        qemu-img convert -n -f qcow2 -O raw "$scratch/image.qcow2" "$uri" &&
        qemu-img compare -f qcow2 -F raw "$scratch/image.qcow2" "$uri"
}

# maps KIND: data and holes of the export are those of the file; what is encrypted is all data.
maps() {
    qemu-img map -f raw --output json "$uri" >"$scratch/map" &&
        qemu-img map -f raw --output json "$scratch/disk" >"$scratch/map.file" &&
        /usr/bin/python3 - "$1" "$size" "$scratch/map" "$scratch/map.file" <<'PY'
import json, sys
kind, size, export, file = sys.argv[1], int(sys.argv[2]), *(json.load(open(p)) for p in sys.argv[3:])
parts = lambda extents: [(e["start"], e["length"], e["data"], e["zero"]) for e in extents]
expected = parts(file) if kind == "plain" else [(0, size, True, False)]
assert parts(export) == expected, (export, expected)
print(f"{len(export)} extents, {sum(e['data'] for e in export)} with data")
PY
}

odd_commands() {
    /usr/bin/python3 ci/nbd/odd_commands.py "$1" 220 $((8 << 20)) >"$scratch/script" &&
        qemu-io -f raw "$uri" <"$scratch/script" >"$scratch/out" 2>&1 || return
    if grep -Ei "fail|error|invalid" "$scratch/out"; then return 1; fi
    printf '%s commands\n' "$(wc -l <"$scratch/script")"
}

corners() {
    /usr/bin/python3 ci/nbd/corners.py "$socket" disk fixed "$size"
}

killed() {
    /usr/bin/python3 ci/nbd/killed.py write "$socket" disk "$scratch/notes" &
    local client=$!
    sleep 1
    kill -9 "$server"
    wait "$server" 2>/dev/null
    wait "$client" && start "$@" &&
        /usr/bin/python3 ci/nbd/killed.py check "$socket" disk "$scratch/notes"
}

# A full disk: the error that the protocol has, and the others go on. A small file system in a file is not
# to be had without privileges, a limit for one process is.
full_disk() {
    rm -f "$socket"
    (ulimit -f 1024 && trap '' XFSZ && exec "$program" --unix "$socket" --quiet --threads 1 \
        --export "disk=$scratch/full" --export "other=$scratch/fixed,ro") 2>>"$scratch/log" &
    server=$!
    for _ in $(seq 100); do [ -S "$socket" ] && break; sleep 0.05; done
    qemu-io -f raw "$uri" -c 'write -P 1 0 64k' >/dev/null &&
        { qemu-io -f raw "$uri" -c 'write -P 1 8M 64k' 2>&1 || true; } | grep "No space left" &&
        qemu-io -f raw "$uri" -c 'read -P 1 0 64k' >/dev/null
}

idle_clients() {
    local before after
    before="$(awk '/VmRSS/ { print $2 }' "/proc/$server/status")"
    /usr/bin/python3 - "$socket" "$server" "$before" <<'PY'
import socket, struct, sys, time
path, server, before = sys.argv[1], sys.argv[2], int(sys.argv[3])
clients = []
for _ in range(1000):
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    s.sendall(struct.pack(">I", 3) + struct.pack(">8sII", b"IHAVEOPT", 1, 4) + b"disk")
    clients.append(s)
for s in clients:
    got = 0
    while got < 18 + 10:
        got += len(s.recv(28 - got))
rss = int([l for l in open(f"/proc/{server}/status") if l.startswith("VmRSS")][0].split()[1])
each = (rss - before) / len(clients)
print(f"1000 idle clients: {each:.1f} KiB each, {rss} KiB in all")
assert each < 32, "too much for a client that does nothing"
PY
}

for engine in io_uring psync; do
    for kind in plain encrypted; do
        key="" header=0
        [ "$kind" = plain ] || key=",key=$scratch/key" header=4096
        rm -f "$scratch/disk" "$scratch/fixed"
        truncate -s "$size" "$scratch/fixed" "$scratch/full"
        truncate -s $((size + header)) "$scratch/disk"
        options=(--engine "$engine" --max-split 64 --export "disk=$scratch/disk$key"
            --export "fixed=$scratch/fixed,ro")
        # Only io_uring may be missing from a machine.
        if ! start "${options[@]}"; then
            [ "$engine" = io_uring ] || exit 1
            skip "nbd $engine" "the engine cannot be used here"
            continue 2
        fi
        step "$engine $kind idle clients" idle_clients
        for jobs in 1 2 4; do step "$engine $kind fio $jobs" fio_verifies "$jobs"; done
        step "$engine $kind copies" copies
        step "$engine $kind map" maps "$kind"
        step "$engine $kind odd commands" odd_commands "$RANDOM"
        step "$engine $kind corners" corners
        step "$engine $kind killed" killed "${options[@]}"
        step "$engine $kind stop" stop
        # Every tenth read or write is refused for now, and sent again.
        step "$engine $kind start with refusals" start "${options[@]}" --faults again=10
        step "$engine $kind fio with refusals" fio_verifies 2
        step "$engine $kind stop with refusals" stop
    done
done
step full-disk full_disk
step full-disk-stop stop
