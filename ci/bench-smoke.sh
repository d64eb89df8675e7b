#!/usr/bin/env bash
# Every benchmark once, in test mode: builds as the tests do, runs and verifies, measures nothing.
# The loads of pools once more by turns: each item of each load runs once, or the program panics.
source "$(dirname "$0")/lib.sh"
step bench-smoke cargo test --quiet -p inflight-benches --benches
step ratios-smoke cargo run --quiet -p inflight-benches --bin ratios -- --quick --only workqueue
