#!/usr/bin/env bash
# Every benchmark once, in test mode: builds, runs and verifies, measures nothing.
source "$(dirname "$0")/lib.sh"
step bench-smoke cargo bench -p inflight-benches -- --test
