#!/usr/bin/env bash
# The simulator: the whole table beside the published one, everything it must show, and the runs in which it
# must not.
source "$(dirname "$0")/lib.sh"

step hdd cargo run --release --quiet -p inflight-sim -- hdd --check
step small-ios cargo run --release --quiet -p inflight-sim -- hdd --small-every 10 --check
step rules cargo run --release --quiet -p inflight-sim -- hdd --rules --check
step unsplit cargo run --release --quiet -p inflight-sim -- hdd --piece-kib 1280 --check
step dmcrypt cargo run --release --quiet -p inflight-sim -- dmcrypt --check
step enqueue cargo run --release --quiet -p inflight-sim -- enqueue --check
step limit cargo run --release --quiet -p inflight-sim -- limit --check
step flush cargo run --release --quiet -p inflight-sim -- flush --check
step placement cargo run --release --quiet -p inflight-sim -- placement --check
step sim-tests cargo test --release --quiet -p inflight-sim --test hdd --test dmcrypt --test enqueue --test flush --test limit --test placement
