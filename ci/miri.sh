#!/usr/bin/env bash
# The tests of the data structures under Miri, several seeds. Needs nightly; by hand.
source "$(dirname "$0")/lib.sh"
if ! cargo +nightly --version >/dev/null 2>&1 || ! component miri nightly || ! component rust-src nightly; then
    skip miri "nightly with miri and rust-src cannot be had"
    exit 0
fi
flags="${MIRIFLAGS:--Zmiri-strict-provenance -Zmiri-disable-isolation}"
export MIRIFLAGS="$flags -Zmiri-many-seeds=0..8"
step miri cargo +nightly miri test --target-dir "$target/miri" "${@:--pinflight-sync}"
# Quick selection for the shared bitmap and batched waiting, without the largest crowds and maps.
if [ $# -eq 0 ]; then
    export MIRIFLAGS="$flags"
    step miri-sbitmap cargo +nightly miri test --target-dir "$target/miri" -p inflight-sbitmap \
        --test bitmap --test items_bitmap --test items_waiting -- --skip b33 --skip h7 --skip the_largest
    # Without the test whose threads sleep in parking_lot, which casts integers to pointers.
    step miri-steering cargo +nightly miri test --target-dir "$target/miri" \
        -p inflight-tags --test steering -- --skip under_load
    # Of workqueues: the pure parts, with few cases of each property, and small runs with threads, which
    # sleep in parking_lot; what is queued when the process ends stays. Left out: what loops for long.
    # On a busy machine: handle 66 s; cut off with most tests over: work 131 s, batch_cases 170 s, --lib 200 s.
    export MIRIFLAGS="-Zmiri-permissive-provenance -Zmiri-disable-isolation -Zmiri-ignore-leaks"
    export PROPTEST_CASES=1
    step miri-workqueue-lib cargo +nightly miri test --target-dir "$target/miri" \
        -p inflight-workqueue --lib
    step miri-workqueue cargo +nightly miri test --target-dir "$target/miri" \
        -p inflight-workqueue --test handle --test work --test batch_cases -- --test-threads 8 \
        --skip the_disable_depth_is_limited --skip what_computes_for_long_is_not_drawn
fi
