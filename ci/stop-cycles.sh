#!/usr/bin/env bash
# CYCLES (default 100,000) times "more waiters than ids, stop, all must finish", for every fairness
# and engine, or those whose name contains NAME. By hand: some minutes. ci/stop-cycles.sh [CYCLES [NAME]]
source "$(dirname "$0")/lib.sh"
cycles() {
    cargo run --release --quiet -p inflight-benches --bin stop_cycles -- "$@"
}
step stop-cycles cycles "${1:-100000}" "${2:-}"
# Once more for the local engine as it is without restartable sequences.
export GLIBC_TUNABLES=glibc.pthread.rseq=0
step stop-cycles-try-lock cycles "${1:-100000}" "${2:-TryLock}"
