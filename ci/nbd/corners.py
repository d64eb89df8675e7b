"""What the protocol asks for at its corners, by a stranger's client library. Run by ci/nbd.sh:
corners.py SOCKET EXPORT READ_ONLY_EXPORT SIZE"""

import errno
import socket
import struct
import sys

import nbd

sock, name, read_only, size = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
checked = 0


def connect(export=name, structured=True, context=True):
    h = nbd.NBD()
    h.set_export_name(export)
    h.set_request_structured_replies(structured)
    h.set_strict_mode(0)
    if context:
        h.add_meta_context("base:allocation")
    h.connect_unix(sock)
    return h


def fails(code, call, *args, **options):
    global checked
    checked += 1
    try:
        call(*args, **options)
    except nbd.Error as e:
        assert e.errno == code, f"{e.string}: {e.errno}, expected {code}"
        return
    raise AssertionError(f"{call} {args} did not fail")


def holds(what):
    global checked
    checked += 1
    assert what


for structured in (True, False):
    h = connect(structured=structured)
    holds(h.get_size() == size)
    holds(h.can_fua() and h.can_multi_conn() and h.can_flush() and h.can_trim() and h.can_zero())
    block = max(1, h.get_block_size(nbd.SIZE_MINIMUM))
    unit = max(block, 512)
    fails("EINVAL", h.pread, unit, size)
    fails("EINVAL", h.pread, unit, (1 << 62))
    fails("ENOSPC", h.pwrite, b"x" * unit, size)
    fails("ENOSPC", h.zero, unit, size)
    fails("ENOSPC", h.trim, unit, size)
    fails("EINVAL", h.pread, 0, 0)
    if block > 1:
        fails("EINVAL", h.pread, 1, 0)
        fails("EINVAL", h.pwrite, b"x", 1)
    # An error leaves the connection as it was.
    h.pwrite(b"a" * unit, size - unit, nbd.CMD_FLAG_FUA)
    holds(h.pread(unit, size - unit) == b"a" * unit)
    h.zero(unit, size - unit)
    holds(h.pread(unit, size - unit) == bytes(unit))
    h.flush()
    h.cache(unit, 0)
    big = bytes(range(256)) * 32768
    h.pwrite(big, 0)
    holds(h.pread(len(big), 0) == big)
    h.shutdown()

h = connect(read_only)
holds(h.is_read_only())
fails("EPERM", h.pwrite, b"x" * 512, 0)
fails("EPERM", h.trim, 512, 0)
fails("EPERM", h.zero, 512, 0)
h.pread(512, 0)
h.shutdown()

h = nbd.NBD()
h.set_export_name("no-such-export")
fails("ENOENT", h.connect_unix, sock)

# Many requests under way at once, answered in any order.
h = connect()
buffers = [nbd.Buffer(4096) for _ in range(500)]
cookies = [h.aio_pread(b, 4096 * n) for n, b in enumerate(buffers)]
for cookie in cookies:
    while not h.aio_command_completed(cookie):
        h.poll(-1)
checked += 1
h.shutdown()


def raw():
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(20)
    s.connect(sock)
    return s


def exactly(s, n):
    data = b""
    while len(data) < n:
        more = s.recv(n - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def closed(s):
    global checked
    checked += 1
    while s.recv(65536):
        pass


def option(number, data=b""):
    return struct.pack(">8sII", b"IHAVEOPT", number, len(data)) + data


def go(s):
    """Agrees on the export, and asks for its block sizes."""
    exactly(s, 18)
    data = struct.pack(">I", len(name)) + name.encode() + struct.pack(">HH", 1, 3)
    s.sendall(struct.pack(">I", 3) + option(7, data))
    kind = 0
    while kind != 1:
        _, _, kind, n = struct.unpack(">QIII", exactly(s, 20))
        exactly(s, n)


# Strangers, and nonsense where an option is due.
s = raw()
s.sendall(b"GET / HTTP/1.1\r\n\r\n")
closed(s)
s = raw()
s.sendall(struct.pack(">I", 3) + b"\0" * 64)
closed(s)
# The oldest way in: no answer but the size, padding as was asked for. It cannot tell a block size, so
# an export that has one is not to be had in this way.
h = connect()
has_blocks = h.get_block_size(nbd.SIZE_MINIMUM) > 1
h.shutdown()
for flags, length in ((1, 8 + 2 + 124), (3, 8 + 2)):
    s = raw()
    exactly(s, 18)
    s.sendall(struct.pack(">I", flags) + option(1, name.encode()))
    if has_blocks:
        holds(s.recv(65536) == b"")
        continue
    answer = exactly(s, length)
    holds(struct.unpack(">Q", answer[:8])[0] == size)
    # A request that is none ends the connection.
    s.sendall(b"\xff" * 28)
    closed(s)
# An option that is too long, one that is unknown, and goodbye.
s = raw()
exactly(s, 18)
s.sendall(struct.pack(">I", 3) + option(7, b"x" * 100000) + option(4711) + option(2))
kinds = []
while True:
    try:
        _, _, kind, n = struct.unpack(">QIII", exactly(s, 20))
    except EOFError:
        break
    exactly(s, n)
    kinds.append(kind)
holds(kinds == [0x80000009, 0x80000001, 1])
# A name that is too long has no answer.
s = raw()
exactly(s, 18)
s.sendall(struct.pack(">I", 3) + option(1, b"x" * 5000))
closed(s)
# A client that goes in the middle of a write harms nobody.
s = raw()
go(s)
s.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 1, 1, 0, 1 << 20) + b"x" * 1000)
s.close()
# One that asks and does not read; others are served meanwhile.
s = raw()
go(s)
s.setblocking(False)
request = struct.pack(">IHHQQI", 0x25609513, 0, 0, 1, 0, 1 << 20)
try:
    for _ in range(10000):
        s.send(request)
except BlockingIOError:
    pass
h = connect()
for _ in range(50):
    h.pread(4096, 0)
h.shutdown()
checked += 1
s.close()
print(f"{checked} corners")
