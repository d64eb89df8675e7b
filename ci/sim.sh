#!/usr/bin/env bash
# The simulator: every published table and picture of the book is what it gives, everything it must show is
# there, and so are the runs in which it must not.
source "$(dirname "$0")/lib.sh"

step published cargo run --release --quiet -p xtask -- published --check
step unsplit cargo run --release --quiet -p inflight-sim -- hdd --piece-kib 1280 --check
step sim-tests cargo test --release --quiet -p inflight-sim --test hdd --test dmcrypt --test enqueue --test flush --test limit --test placement
