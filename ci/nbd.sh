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
uri_unix="nbd+unix:///disk?socket=$socket"
uri="$uri_unix"
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

# free_port: one of TCP that nobody listens at now.
free_port() {
    /usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
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

# Whoever lists exports may ask about one after the other.
lists() {
    local exports=() n
    for n in $(seq 100); do exports+=(--export "disk$n=$scratch/fixed,ro"); done
    start --threads 1 "${exports[@]}" &&
        [ "$(qemu-nbd -L -k "$socket" | grep -c 'export: ')" = 100 ] &&
        [ "$(nbdinfo --list "nbd+unix:///?socket=$socket" | grep -c '^export=')" = 100 ] && stop
}

# The addresses that are printed are for clients as they are, whatever an export is called.
uris() {
    local uri
    : >"$scratch/log"
    start --threads 1 --listen "127.0.0.1:$(free_port)" --export "a b?#%é/1=$scratch/fixed,ro" || return
    until [ "$(grep -c '^nbd-export: nbd' "$scratch/log")" = 2 ]; do
        kill -0 "$server" || return
        sleep 0.05
    done
    for uri in $(sed -n 's/^nbd-export: \(nbd.*\)/\1/p' "$scratch/log"); do
        printf '%s\n' "$uri"
        [ "$(nbdinfo --size "$uri")" = "$size" ] && qemu-io -r -f raw "$uri" -c 'read -P 0 0 4k' || return
    done
    stop
}

# idle_clients PORT: a thousand over a Unix socket, then a thousand over TCP.
idle_clients() {
    /usr/bin/python3 - "$socket" "$1" "$server" <<'PY'
import resource, socket, struct, sys
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
path, port, server = sys.argv[1], int(sys.argv[2]), sys.argv[3]

def client(family, address):
    s = socket.socket(family)
    s.connect(address)
    # Block sizes are asked for: an encrypted export is for no others.
    go = struct.pack(">I4sHH", 4, b"disk", 1, 3)
    s.sendall(struct.pack(">I", 3) + struct.pack(">8sII", b"IHAVEOPT", 7, len(go)) + go)
    return s

def served(s):
    # The greeting, the export's size, its block sizes, and that it is agreed on.
    answers = 18 + (20 + 12) + (20 + 14) + 20
    got = 0
    while got < answers:
        more = len(s.recv(answers - got))
        assert more > 0, "a client was sent away"
        got += more
    return s

def resident():
    return int([l for l in open(f"/proc/{server}/status") if l.startswith("VmRSS")][0].split()[1])

# All stay until the end: memory that some leave behind would be counted for none of the others.
stay = []
for name, family, address in ("Unix", socket.AF_UNIX, path), ("TCP", socket.AF_INET, ("127.0.0.1", port)):
    # When the first one is served, all threads have begun, and have made what they keep.
    clients = [served(client(family, address))]
    before = resident()
    clients += [client(family, address) for _ in range(1000)]
    for s in clients[1:]:
        served(s)
    after = resident()
    stay += clients
    each = (after - before) / 1000
    print(f"{name}: 1000 idle clients: {each:.1f} KiB each, {after} KiB in all")
    assert each < 4, "too much for a client that does nothing"
PY
}

for engine in io_uring psync; do
    for kind in plain encrypted; do
        key="" header=0
        [ "$kind" = plain ] || key=",key=$scratch/key" header=4096
        rm -f "$scratch/disk" "$scratch/fixed"
        truncate -s "$size" "$scratch/fixed" "$scratch/full"
        truncate -s $((size + header)) "$scratch/disk"
        port="$(free_port)"
        options=(--engine "$engine" --max-split 64 --export "disk=$scratch/disk$key"
            --export "fixed=$scratch/fixed,ro" --listen "127.0.0.1:$port")
        # Only io_uring may be missing from a machine.
        if ! start "${options[@]}"; then
            [ "$engine" = io_uring ] || exit 1
            skip "nbd $engine" "the engine cannot be used here"
            continue 2
        fi
        step "$engine $kind idle clients" idle_clients "$port"
        for jobs in 1 2 4; do step "$engine $kind fio $jobs" fio_verifies "$jobs"; done
        step "$engine $kind copies" copies
        step "$engine $kind map" maps "$kind"
        step "$engine $kind odd commands" odd_commands "$RANDOM"
        uri="nbd://127.0.0.1:$port/disk"
        step "$engine $kind tcp fio" fio_verifies 2
        step "$engine $kind tcp copies" copies
        step "$engine $kind tcp map" maps "$kind"
        step "$engine $kind tcp odd commands" odd_commands "$RANDOM"
        uri="$uri_unix"
        step "$engine $kind corners" corners
        step "$engine $kind killed" killed "${options[@]}"
        step "$engine $kind stop" stop
        # Every tenth read or write is refused for now, and sent again.
        step "$engine $kind start with refusals" start "${options[@]}" --faults again=10
        step "$engine $kind fio with refusals" fio_verifies 2
        step "$engine $kind stop with refusals" stop
    done
done
# Pages of files in memory go to the socket as they are.
if memory="$(mktemp -p /dev/shm)"; then
    trap '[ -z "$server" ] || kill -9 "$server" 2>/dev/null; rm -rf "$scratch" "$memory"' EXIT
    truncate -s "$size" "$memory"
    port="$(free_port)"
    step "memory start" start --export "disk=$memory" --listen "127.0.0.1:$port"
    step "memory copies" copies
    uri="nbd://127.0.0.1:$port/disk"
    step "memory tcp copies" copies
    step "memory tcp fio" fio_verifies 2
    uri="$uri_unix"
    step "memory stop" stop
fi
step lists lists
step uris uris
step full-disk full_disk
step full-disk-stop stop
