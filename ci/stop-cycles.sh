#!/usr/bin/env bash
# CYCLES (default 100,000) times "more waiters than ids, stop, all must finish", for every fairness
# and engine. By hand: some minutes.
source "$(dirname "$0")/lib.sh"
step stop-cycles cargo run --release --quiet -p inflight-benches --bin stop_cycles -- "${1:-100000}"
