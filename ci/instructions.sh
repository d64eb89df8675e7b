#!/usr/bin/env bash
# Instructions of a get+put pair, which do not depend on the machine's mood: by callgrind as the
# difference of two run lengths, and for restartable sequences, which valgrind lacks, by a debugger
# that steps through one pair. Under valgrind the thread's CPU number is set, because there asking
# for it is a call of the system and not a load. Of items: ci/workqueue-instructions.sh. By hand.
source "$(dirname "$0")/lib.sh"
if ! command -v valgrind >/dev/null 2>&1; then
    skip instructions "no valgrind"
    exit 0
fi
cargo build --release --quiet -p inflight-benches --bin instructions
program="$target/release/instructions"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

# instructions NAME PAIRS: of a whole run.
instructions() {
    valgrind --tool=callgrind --callgrind-out-file="$scratch/out" "$program" "$@" \
        2>"$scratch/log" >/dev/null || { cat "$scratch/log"; return 1; }
    sed -n 's/^summary: *\([0-9]*\).*/\1/p;s/^totals: *\([0-9]*\).*/\1/p' "$scratch/out" | head -n 1
}

printf '%-36s %s\n' "get+put, 64 ids, under valgrind" "instructions"
"$program" --list | while read -r name; do
    few="$(instructions "$name" 10000)"
    many="$(instructions "$name" 30000)"
    printf '%-36s %8.1f\n' "$name" "$(awk "BEGIN { print ($many - $few) / 20000 }")"
done

if ! command -v gdb >/dev/null 2>&1 || [ "$("$program" --step checked)" != Rseq ]; then
    skip rseq-instructions "no gdb, or no restartable sequences"
    exit 0
fi
printf '\n%-36s %s\n' "get+put, 64 ids, stepped" "instructions of a function"
for check in checked trusted; do
    counted="$(gdb -q -batch -x ci/rseq-instructions.py --args "$program" --step "$check" 2>/dev/null |
        sed -n 's/^counted //p')"
    printf '%-36s %8s\n' "SbitmapQueue, $check" "${counted:-nothing}"
done
