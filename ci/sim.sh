#!/usr/bin/env bash
# The simulator: every published table and picture of the book is what it gives, and everything it must show
# is there. `ci/sim.sh --tests`: the tests too, at all points and with the runs that must not fit; `ci/test.sh`
# has them at fewer points.
source "$(dirname "$0")/lib.sh"

step published cargo run --release --quiet -p xtask -- published --check
step unsplit cargo run --release --quiet -p inflight-sim -- hdd --piece-kib 1280 --check
if [ "${1:-}" != --tests ]; then exit 0; fi
step sim-tests cargo test --release --quiet -p inflight-sim --test hdd --test dmcrypt --test enqueue --test flush --test limit --test placement
