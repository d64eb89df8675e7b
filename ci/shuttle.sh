#!/usr/bin/env bash
# Random schedules of whole components with more threads than loom can take.
source "$(dirname "$0")/lib.sh"
step shuttle env RUSTFLAGS="--cfg shuttle" cargo test --quiet --target-dir "$target/shuttle" \
    -p inflight-sbitmap -p inflight-workqueue --test 'shuttle_*'
