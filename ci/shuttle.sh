#!/usr/bin/env bash
# Random schedules of whole components with more threads than loom can take. TIMES as many of them as the
# tests ask for: ci/shuttle.sh [TIMES]
source "$(dirname "$0")/lib.sh"
step shuttle env RUSTFLAGS="--cfg shuttle" INFLIGHT_SHUTTLE_TIMES="${1:-1}" CARGO_PROFILE_DEV_OPT_LEVEL=1 \
    cargo test --quiet --target-dir "$target/shuttle" \
    -p inflight-sbitmap -p inflight-flush -p inflight-tags -p inflight-workqueue --test 'shuttle_*'
