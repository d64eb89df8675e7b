"""Durable writes until the server is killed, then what was acknowledged is looked for.
killed.py write SOCKET EXPORT FILE: writes until the connection breaks, and notes what was acknowledged.
killed.py check SOCKET EXPORT FILE: is it there?"""

import random
import struct
import sys

import nbd

what, sock, name, notes = sys.argv[1:]
BLOCK, BLOCKS = 4096, 512


def block(n, version):
    return struct.pack(">QQ", n, version) * (BLOCK // 16)


h = nbd.NBD()
h.set_export_name(name)
h.connect_unix(sock)
if what == "write":
    rng = random.Random()
    noted = open(notes, "w", buffering=1)
    version = 0
    try:
        while True:
            version += 1
            blocks = rng.sample(range(BLOCKS), 8)
            cookies = []
            for n in blocks:
                noted.write(f"begun {n} {version}\n")
                buffer = nbd.Buffer.from_bytearray(bytearray(block(n, version)))
                cookies.append((n, h.aio_pwrite(buffer, n * BLOCK, flags=nbd.CMD_FLAG_FUA), buffer))
            for n, cookie, _ in cookies:
                while not h.aio_command_completed(cookie):
                    h.poll(-1)
                noted.write(f"done {n} {version}\n")
    except nbd.Error:
        print(f"killed in round {version}")
else:
    begun, done = {}, {}
    for line in open(notes):
        state, n, version = line.split()
        (begun if state == "begun" else done)[int(n)] = int(version)
    assert len(done) > 10, "too little was acknowledged to tell anything"
    for n, version in done.items():
        found = struct.unpack(">QQ", h.pread(BLOCK, n * BLOCK)[:16])
        assert found[0] == n and version <= found[1] <= begun[n], (n, version, found)
        assert h.pread(BLOCK, n * BLOCK) == block(n, found[1]), "half a write"
    print(f"{len(done)} acknowledged blocks are there")
    h.shutdown()
