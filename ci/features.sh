#!/usr/bin/env bash
# Each feature of the published crates alone: it compiles, and what it adds is tested.
source "$(dirname "$0")/lib.sh"
for feature in inflight-{sbitmap,topology}/serde inflight-{tags,workqueue}/metrics \
    inflight-workqueue/{serve,tracing,futures,unstable-sim} inflight/{futures,metrics,serve,serde,tracing}; do
    crate="${feature%/*}"
    step "check $feature" cargo check --quiet -p "$crate" --features "$feature"
done
step "test tracing" cargo test --quiet -p inflight-workqueue --features tracing --test tracing
step "test futures" cargo test --quiet -p inflight-workqueue --features futures --test future
