"""io-engine and fio by turns on one file: `ci/fio.sh` says how to call it."""

import json
import os
import statistics
import subprocess
import sys

PATTERNS = ["randread", "randwrite", "randrw", "read", "write"]
ENGINE = os.environ.get("ENGINE", "io_uring")
DEPTHS = [int(depth) for depth in os.environ.get("DEPTHS", "1 16 64").split()]


def iops(command):
    """What a program reaches, reads and writes together."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr or done.stdout}")
    result = json.loads(done.stdout)
    if "jobs" in result and "fio version" in result:
        return sum(job[way]["iops"] for job in result["jobs"] for way in ("read", "write"))
    return result["read_iops"] + result["write_iops"]


def main():
    ours, file, turns, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    size, wanted = os.environ.get("SIZE", "256m"), os.environ.get("CELLS", "")
    # All blocks are written once, so that no program meets a hole.
    subprocess.run(
        ["fio", "--name=fill", f"--filename={file}", f"--size={size}", "--rw=write", "--bs=1m",
         "--end_fsync=1"],
        check=True, stdout=subprocess.DEVNULL,
    )
    print(f"IOPS, ours / fio's (fio's): median of {turns} turns of {seconds} s, and the extremes")
    print("| | " + " | ".join(f"depth {depth}" for depth in DEPTHS) + " |")
    print("|---|" + "---|" * len(DEPTHS))
    for direct in (0, 1):
        for pattern in PATTERNS:
            row = f"{'direct' if direct else 'buffered'} {pattern}"
            if wanted not in row:
                continue
            cells = []
            for depth in DEPTHS:
                shape = [f"--filename={file}", f"--size={size}", f"--rw={pattern}", "--bs=4k",
                         f"--iodepth={depth}", f"--runtime={seconds}", f"--direct={direct}"]
                fio = ["fio", "--name=x", f"--ioengine={ENGINE}", "--time_based", "--thread",
                       "--norandommap", "--invalidate=0", "--output-format=json", *shape]
                mine = [ours, "--engine=io_uring", "--verify=none", "--json", *shape]
                ratios, rival = [], []
                for turn in range(turns):
                    # Whoever goes first meets another page cache: they change places.
                    pair = [iops(fio), iops(mine)] if turn % 2 else [iops(mine), iops(fio)][::-1]
                    rival.append(pair[0])
                    ratios.append(pair[1] / pair[0])
                cells.append(f"{statistics.median(ratios):.2f} "
                             f"({min(ratios):.2f} to {max(ratios):.2f}; "
                             f"{statistics.median(rival) / 1000:.0f}k)")
            print(f"| {row} | " + " | ".join(cells) + " |", flush=True)


main()
