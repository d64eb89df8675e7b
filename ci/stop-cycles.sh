#!/usr/bin/env bash
# CYCLES (default 100,000) times "more waiters than ids, stop, all must finish", for every fairness
# and engine, or those whose name contains NAME. By hand: some minutes. ci/stop-cycles.sh [CYCLES [NAME]]
source "$(dirname "$0")/lib.sh"
step stop-cycles cargo run --release --quiet -p inflight-benches --bin stop_cycles -- "${1:-100000}" "${2:-}"
