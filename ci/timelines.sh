#!/usr/bin/env bash
# The documented execution scenarios of workqueues in real time, ten times as long: each event as expected and
# as seen. By hand: on a loaded machine events come late. ci/timelines.sh [TOLERANCE_MS [ATTEMPTS]]
source "$(dirname "$0")/lib.sh"
step timelines cargo run --release --quiet -p inflight-workqueue --example timelines -- "${@:-25}"
