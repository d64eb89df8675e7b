#!/usr/bin/env bash
# Instructions, locked instructions and calls of malloc for each item of an unbound queue: for closures of 32
# bytes whose handle is dropped, and for reusable works, on described machines of 2 and of 256 CPUs (scope
# cache_shard, max_active 1024, one submitter, windows of 256 items). By callgrind, as the difference of two run
# lengths, apart for the submitter, for the workers, which are the threads that ran an item, and for all other
# threads. The last line of each kind is the ratio of the sums of instructions, 256 CPUs to 2; its goal is 1.5.
# valgrind runs one thread at a time, so nothing here waits for a lock, and it has no restartable sequences; the
# submitter's CPU number is set, because there asking for it is a call of the system. By hand.
# ci/workqueue-instructions.sh [ITEMS]: 102,400 more items in the longer run, unless said.
source "$(dirname "$0")/lib.sh"
case "${1:-}" in
-h | --help)
    sed -n '2,/^source/{/^source/d;s/^# \{0,1\}//p}' "$0"
    exit 0
    ;;
esac
if ! command -v valgrind >/dev/null 2>&1; then
    skip workqueue-instructions "no valgrind"
    exit 0
fi
cargo build --release --quiet -p inflight-benches --bin instructions
program="$target/release/instructions"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
few=25600
more="${1:-102400}"

# counts KIND MACHINE ITEMS: "who instructions locked mallocs", a line for each who, of a whole run.
counts() {
    rm -f "$scratch"/out*
    valgrind --tool=callgrind --separate-threads=yes --collect-bus=yes --callgrind-out-file="$scratch/out" \
        "$program" --items "$@" >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2; return 1; }
    local file
    for file in "$scratch"/out-*; do
        # A name stands beside its number where it comes first, alone or as the callee.
        awk '
            /^events:/ { if ($2 != "Ir" || $3 != "Ge") exit 1 }
            /^thread:/ { submitter = $2 == 1 }
            /^totals:/ { instructions = $2; locked = $3 }
            /^c?fn=/ {
                number = $0; sub(/^c?fn=/, "", number); sub(/\).*/, "", number)
                name = $0; if (sub(/^[^)]*\) /, "", name)) names[number] = name
                if (names[number] ~ /counted_item/) worker = 1
                if ($0 ~ /^cfn/) callee = names[number]
            }
            /^calls=/ && callee ~ /^(malloc|calloc|realloc|aligned_alloc|posix_memalign)$/ {
                split($1, calls, "="); mallocs += calls[2]
            }
            END { print submitter ? "submitter" : worker ? "workers" : "others", instructions, locked, mallocs + 0 }
        ' "$file"
    done | awk '
        { for (i = 2; i <= 4; i++) sum[$1, i] += $i }
        END {
            split("submitter workers others", who)
            for (w = 1; w <= 3; w++) print who[w], sum[who[w], 2] + 0, sum[who[w], 3] + 0, sum[who[w], 4] + 0
        }'
}

# row KIND CPUS MACHINE: prints the figures for an item; the last line is "sum INSTRUCTIONS".
row() {
    counts "$1" "$3" "$few" >"$scratch/few"
    counts "$1" "$3" "$((few + more))" >"$scratch/more"
    paste -d' ' "$scratch/few" "$scratch/more" | awk -v n="$more" -v kind="$1" -v cpus="$2" '
        function line(who, a, b, c) { printf "%-7s %5s  %-10s %12.1f %8.2f %8.2f\n", kind, cpus, who, a, b, c }
        {
            a = ($6 - $2) / n; b = ($7 - $3) / n; c = ($8 - $4) / n
            line($1, a, b, c); instructions += a; locked += b; mallocs += c
        }
        END { line("all", instructions, locked, mallocs) }'
}

printf '%-7s %5s  %-10s %12s %8s %8s\n' item CPUs thread instructions locked mallocs
for kind in spawn work; do
    row "$kind" 2 "core:2" | tee "$scratch/small"
    row "$kind" 256 "numa:2 cache:8 core:8 smt:2" | tee "$scratch/large"
    cat "$scratch/small" "$scratch/large" | awk -v kind="$kind" '
        $3 == "all" { sums[++n] = $4 }
        END {
            if (n != 2 || sums[1] <= 0) { print "nothing was counted"; exit 1 }
            ratio = sums[2] / sums[1]
            printf "%-7s 256 CPUs / 2: %.2f   goal <= 1.5: %s\n\n", kind, ratio, ratio <= 1.5 ? "yes" : "NO"
        }'
done
