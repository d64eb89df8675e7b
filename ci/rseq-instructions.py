"""Counts the instructions of a get and a put on restartable sequences. For gdb, by
ci/instructions.sh.

A debugger that steps inside a sequence makes the kernel abort it. So every instruction is stepped
but those of the two sequences: they have no jump on the way to their end, and are counted in their
disassembly.
"""

import gdb

FUNCTION = "counted_pair"
CALLS = 6


def sequences():
    """Start and end of every sequence, from the descriptions in the program."""
    listing = gdb.execute("info files", to_string=True).splitlines()
    section = next(line for line in listing if " is __rseq_cs" in line and " in " not in line)
    begin, end = (int(word, 16) for word in (section.split()[0], section.split()[2]))
    memory = gdb.selected_inferior().read_memory(begin, end - begin).tobytes()
    number = lambda at: int.from_bytes(memory[at : at + 8], "little")
    return {number(at + 8): number(at + 8) + number(at + 16) for at in range(0, end - begin, 32)}


def straight(start, end):
    """How many instructions a sequence has."""
    arch = gdb.selected_frame().architecture()
    return len(arch.disassemble(start, end - 1))


def pc():
    return gdb.selected_frame().pc()


def count(known):
    """From the first instruction of the function to its return."""
    arch = gdb.selected_frame().architecture()
    home = gdb.selected_frame().older().pc()
    total = 0
    inside = 0
    while pc() != home:
        total += 1
        following = pc() + arch.disassemble(pc())[0]["length"]
        if following in known:
            total += straight(following, known[following])
            inside += 1
            gdb.Breakpoint(f"*{known[following]}", temporary=True)
            gdb.execute("continue", to_string=True)
        else:
            gdb.execute("stepi", to_string=True)
    return total, inside


gdb.execute("set confirm off")
gdb.execute(f"rbreak {FUNCTION}", to_string=True)
gdb.execute("run", to_string=True)
known = sequences()
counts = []
for _ in range(CALLS):
    gdb.execute("continue", to_string=True)
    total, inside = count(known)
    if inside == 2:
        counts.append(total)
# The first calls open the CPU's stack and fill it, and any may lose its CPU.
print("counted", min(counts, default="nothing"))
gdb.execute("kill")
