#!/usr/bin/env bash
# A user's own code on top of ours under loom: the correct ring passes, what is planted is found.
source "$(dirname "$0")/lib.sh"
step downstream env RUSTFLAGS="--cfg loom" cargo test --profile loom --target-dir "$target/loom" \
    -p loom-downstream --tests
