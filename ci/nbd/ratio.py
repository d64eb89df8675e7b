"""Throughput, CPU time for each request, and p99 of three servers under the same client, in turn; and
what two tenants of different weight get.
ratio.py PROGRAM SCRATCH DISK_FOLDER ROUNDS SECONDS loads|weights|loads,weights ONLY [KEYFILE]
ONLY is a part of the name of what is run, "memory, 1M" for instance; nothing for all."""

import json
import os
import signal
import statistics
import subprocess
import sys
import time

program, scratch, disk, rounds, seconds, parts, only = sys.argv[1:8]
parts = parts.split(",")
key = sys.argv[8] if len(sys.argv) > 8 else None
rounds, seconds = int(rounds), int(seconds)
SIZE = 512 << 20
TICK = os.sysconf("SC_CLK_TCK")
sock = os.path.join(scratch, "ratio.sock")
LOADS = {
    "4k random read": ["--rw=randread", "--bs=4k", "--iodepth=64"],
    "4k random write": ["--rw=randwrite", "--bs=4k", "--iodepth=64"],
    "1M sequential read": ["--rw=read", "--bs=1m", "--iodepth=8"],
    "1M sequential write": ["--rw=write", "--bs=1m", "--iodepth=8"],
}


def servers(path):
    secret = f",key={key}" if key else ""
    yield "ours", [program, "--quiet", "--unix", sock, "--export", f"disk={path}{secret}"]
    if key:
        return
    yield "nbdkit file", ["nbdkit", "-f", "-U", sock, "file", path]
    yield "qemu-nbd", ["qemu-nbd", "-t", "-f", "raw", "-e", "8", "-x", "disk", "-k", sock, path]


def luks_servers(path):
    password = os.path.join(scratch, "password")
    yield "nbdkit luks", ["nbdkit", "-f", "-U", sock, "--filter=luks", "file", path + ".luks",
                          f"passphrase=+{password}"]
    yield "qemu-nbd luks", [
        "qemu-nbd", "-t", "-e", "8", "-x", "disk", "-k", sock,
        "--object", f"secret,id=s,file={password}",
        "--image-opts", f"driver=luks,key-secret=s,file.driver=file,file.filename={path}.luks",
    ]


def cpu(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def start(command):
    if os.path.exists(sock):
        os.unlink(sock)
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    for _ in range(200):
        if os.path.exists(sock):
            return server
        time.sleep(0.02)
    raise SystemExit(f"{command[0]} does not listen")


def stop(server):
    server.send_signal(signal.SIGTERM)
    server.wait()


def fio(load, export="disk", runtime=None, name="job"):
    uri = f"nbd+unix:///{export}?socket={sock}"
    return subprocess.Popen(
        ["fio", f"--name={name}", "--ioengine=nbd", f"--uri={uri}", f"--size={SIZE}",
         "--time_based", f"--runtime={runtime or seconds}", "--output-format=json", *load],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=scratch)


def result(client):
    text = client.communicate()[0].decode()
    job = json.loads(text[text.index("{"):])["jobs"][0]
    side = max(("read", "write"), key=lambda s: job[s]["total_ios"])
    return job[side]["iops"], job[side]["clat_ns"]["percentile"]["99.000000"] / 1e3, job[side]["total_ios"]


def measure(command, load):
    server = start(command)
    try:
        before = cpu(server.pid)
        iops, p99, count = result(fio(load))
        return iops, (cpu(server.pid) - before) / count * 1e6, p99
    finally:
        stop(server)


places = [("memory", "/dev/shm"), ("disk", disk)]
print(f"{rounds} rounds of {seconds} s, medians; CPU of the server in us for each request")
for place, folder in places if "loads" in parts else ():
    chosen = {name: load for name, load in LOADS.items() if only in f"{place}, {name}"}
    if not chosen:
        continue
    path = os.path.join(folder, f"nbd-ratio-{os.getpid()}")
    try:
        # Page by page: of longer writes ext4 makes folios of many pages in memory, and each short write
        # to one then walks all of its blocks, which takes longer than all that servers do.
        with open(path, "wb", buffering=0) as file:
            # An encrypted file has a header before its data.
            file.write(bytes(4096) if key else b"")
            for _ in range(SIZE >> 12):
                file.write(os.urandom(4096))
            os.fsync(file.fileno())
        commands = list(servers(path))
        if key:
            server = start([program, "--quiet", "--unix", sock, "--export", f"disk={path},key={key},format"])
            server.terminate()
            server.wait()
            password = os.path.join(scratch, "password")
            open(password, "w").write("a password for luks")
            subprocess.run(["qemu-img", "create", "-q", "--object", f"secret,id=s,file={password}",
                            "-f", "luks", "-o", "key-secret=s,iter-time=200", path + ".luks", str(SIZE)],
                           check=True)
            commands += luks_servers(path)
        for name, load in chosen.items():
            seen = {who: [] for who, _ in commands}
            for turn in range(rounds):
                for n in range(len(commands)):
                    who, command = commands[(n + turn) % len(commands)]
                    seen[who].append(measure(command, load))
            middle = {who: [statistics.median(run[i] for run in runs) for i in range(3)]
                      for who, runs in seen.items()}
            ours = middle["ours"]
            others = [m for who, m in middle.items() if who != "ours"]
            ratio = ours[0] / max(m[0] for m in others)
            cheaper = ours[1] / min(m[1] for m in others)
            sooner = ours[2] / min(m[2] for m in others)
            print(f"\n{place}, {name}: throughput x {ratio:.2f}, CPU x {cheaper:.2f}, p99 x {sooner:.2f}")
            for who, (iops, cost, p99) in middle.items():
                print(f"  {who:14} {iops:10.0f} requests/s {cost:8.2f} us CPU {p99:10.0f} us p99")
    finally:
        for suffix in ("", ".luks"):
            if os.path.exists(path + suffix):
                os.unlink(path + suffix)



def weights(folder, load, depth, options):
    """What the export of weight 3 gets of the requests, of one of weight 1 beside it, in percent."""
    a, b = (os.path.join(folder, f"nbd-ratio-{os.getpid()}-{n}") for n in "ab")
    shares = []
    try:
        for path in (a, b):
            subprocess.run(["truncate", "-s", str(SIZE), path], check=True)
        for _ in range(rounds):
            server = start([program, "--quiet", "--unix", sock, "--depth", str(depth), "--threads", "1", *options,
                            "--export", f"a={a},weight=3", "--export", f"b={b}"])
            try:
                load_of_both = [f"--rw={load}", "--bs=4k", "--iodepth=64"]
                clients = [fio(load_of_both, export, seconds * 2, export) for export in "ab"]
                done = [result(client)[2] for client in clients]
            finally:
                stop(server)
            shares.append(done[0] / sum(done) * 100)
    finally:
        for path in (a, b):
            if os.path.exists(path):
                os.unlink(path)
    return shares


if "weights" in parts:
    print("\nshares of two tenants with weights 3:1, both clients at depth 64, in percent: median (of all)")
    # A file that is slower than its clients: it refuses every second request for a millisecond.
    slow = ("slow memory", "/dev/shm", ["--faults", "again=2"])
    for place, folder, options in [slow] + [(*place, []) for place in places]:
        if only not in place:
            continue
        for load in ("randread", "randwrite"):
            for depth in (4, 16):
                shares = weights(folder, load, depth, options)
                middle = statistics.median(shares)
                every = ", ".join(f"{share:.1f}" for share in shares)
                print(f"  {place}, {load}, {depth} tags: {middle:.1f} : {100 - middle:.1f} ({every})")
