"""A script for qemu-io: COUNT odd commands on SIZE bytes, each read checked against what was written
before. odd_commands.py SEED COUNT SIZE"""

import random
import sys

seed, count, size = map(int, sys.argv[1:])
rng = random.Random(seed)
# A pattern for each 512 bytes, or None where nobody knows.
unit = 512
state = [0] * (size // unit)
print("write -z 0 %d" % size)
for _ in range(count):
    kind = rng.choice(["write", "write", "read", "read", "zero", "discard", "flush", "fua", "odd"])
    start = rng.randrange(len(state))
    length = min(rng.choice([1, 2, 3, 7, 8, 64, 129, 1000]), len(state) - start)
    where = "%d %d" % (start * unit, length * unit)
    area = range(start, start + length)
    pattern = rng.randrange(1, 256)
    if kind in ("write", "fua"):
        print("write %s-P %d %s" % ("-f " if kind == "fua" else "", pattern, where))
        for n in area:
            state[n] = pattern
    elif kind == "zero":
        print("write -z %s%s" % (rng.choice(["", "-u "]), where))
        for n in area:
            state[n] = 0
    elif kind == "discard":
        print("discard " + where)
        for n in area:
            state[n] = None
    elif kind == "flush":
        print("flush")
    elif kind == "odd":
        # In the middle of a unit: qemu reads, changes and writes where it must.
        at, more = rng.randrange(unit), rng.randrange(1, 3 * unit)
        offset = min(start * unit + at, size - 1)
        more = min(more, size - offset)
        print("write -P %d %d %d" % (pattern, offset, more))
        for n in range(offset // unit, (offset + more - 1) // unit + 1):
            whole = offset <= n * unit and (n + 1) * unit <= offset + more
            state[n] = pattern if whole else None
    else:
        at = start
        while at < start + length:
            end = at
            while end < start + length and state[end] == state[at]:
                end += 1
            known = "" if state[at] is None else "-P %d " % state[at]
            print("read %s%d %d" % (known, at * unit, (end - at) * unit))
            at = end
