#!/usr/bin/env bash
# Each feature of the published crates alone compiles; and all those of the workqueue together pass its
# tests, those of what a feature adds among them: a feature may change what the others rely on.
source "$(dirname "$0")/lib.sh"
for feature in inflight-{sbitmap,topology}/serde inflight-{flush,tags,workqueue}/metrics inflight-tags/futures \
    inflight-workqueue/{tracing,futures,unstable-sim} inflight-flush/io-uring inflight/{futures,io-uring,metrics,serve,serde,tracing}; do
    crate="${feature%/*}"
    step "check $feature" cargo check --quiet -p "$crate" --features "$feature"
done
step "test all features" cargo test --quiet -p inflight-workqueue --all-features
step "test inflight-tags/futures" cargo test --quiet -p inflight-tags --all-features --test split_stream
step "test inflight-flush/io-uring" cargo test --quiet -p inflight-flush --all-features --doc
step "test the devices of inflight-flush" cargo test --quiet -p inflight-flush --all-features --test devices --test uring_short_write
step "test the rings of inflight-flush" cargo test --quiet -p inflight-flush --all-features --lib uring
step "test the metrics of inflight" cargo test --quiet -p inflight --features metrics --test metrics
