#!/usr/bin/env bash
# Every benchmark once, in test mode: builds as the tests do, runs and verifies, measures nothing.
source "$(dirname "$0")/lib.sh"
step bench-smoke cargo test --quiet -p inflight-benches --benches
