#!/usr/bin/env bash
# Random works, cancels, disables, delays, panics, silent sleepers, limits and refused threads on one system, until
# so many items have been accepted. By hand; the suite runs a small one. ci/workqueue-stress.sh [ITEMS] [SEED]
source "$(dirname "$0")/lib.sh"
items="${1:-1000000}"
seed="${2:-$((RANDOM << 30 | RANDOM << 15 | RANDOM))}"
step workqueue-stress env INFLIGHT_STRESS_ITEMS="$items" INFLIGHT_STRESS_SEED="$seed" \
    cargo test --release --quiet -p inflight-workqueue --test stress -- --nocapture
