#!/usr/bin/env bash
# The tests under ThreadSanitizer and AddressSanitizer, with a std built for them. Needs nightly; by hand.
# `ci/sanitizers.sh thread -p inflight-sbitmap --test waiting`: one of them, and what cargo is to test.
source "$(dirname "$0")/lib.sh"
if ! cargo +nightly --version >/dev/null 2>&1 || ! component rust-src nightly; then
    skip sanitizers "nightly with rust-src cannot be had"
    exit 0
fi
host="$(rustc -vV | sed -n 's/^host: //p')"
sanitizers="thread address"
if [ "${1:-}" = thread ] || [ "${1:-}" = address ]; then
    sanitizers="$1"
    shift
fi
if [ $# -eq 0 ]; then
    set -- --lib --tests -p inflight-sync -p inflight-sbitmap -p inflight-steering -p inflight-tags \
        -p inflight-workqueue -p inflight-topology
fi
# Sanitized runs are ten times slower, and many cases of one property find no other race.
export PROPTEST_CASES="${PROPTEST_CASES:-32}"

# sanitized SANITIZER COMMAND ARGS...: a command of cargo. ARGS may end with what the programs get.
sanitized() {
    local sanitizer="$1" command="$2"
    shift 2
    env RUSTFLAGS="-Zsanitizer=$sanitizer" RUSTDOCFLAGS="-Zsanitizer=$sanitizer" \
        cargo +nightly "$command" -Zbuild-std --target "$host" --target-dir "$target/$sanitizer" "$@"
}

# no_sequences SANITIZER ARGS...: a sanitizer does not see what assembly does, so the try-lock stacks must be
# what is tested.
no_sequences() {
    local sanitizer="$1"
    shift
    sanitized "$sanitizer" test --no-run --message-format=json "$@" 2>/dev/null |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' >"$scratch/programs"
    [ -s "$scratch/programs" ] || return 1
    while read -r program; do
        if grep -q __rseq_cs "$program"; then
            echo "$program has restartable sequences"
            return 1
        fi
    done <"$scratch/programs"
}

# tests SANITIZER ARGS...: runs them. ThreadSanitizer has a thread of its own that wakes up, and makes each
# lock so slow that items are not small and pods not worth helping: what counts wakeups, rows and
# thefts is left out. AddressSanitizer makes items too slow for rows. The other tests of rows and thefts run.
tests() {
    if [[ " $* " == *" -- "* ]]; then
        sanitized "$@"
    elif [ "$1" = thread ]; then
        sanitized "$@" -- --skip a_process_with_nothing_to_do_makes_no_wakeups \
            --skip a_row_overtakes_and_not_where_it_must_not \
            --skip an_idle_pod_takes_what_waits_for_long --skip a_taken_item_never_runs_twice_at_once
    else
        sanitized "$@" -- --skip a_row_overtakes_and_not_where_it_must_not
    fi
}

scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
for sanitizer in $sanitizers; do
    step "$sanitizer, build" sanitized "$sanitizer" test --no-run "$@"
    step "$sanitizer, no sequences" no_sequences "$sanitizer" "$@"
    step "$sanitizer" tests "$sanitizer" test "$@"
done
