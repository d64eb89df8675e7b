#!/usr/bin/env bash
# Weakens every ordering and fence of the modelled crates, one at a time: some model must fail on each.
source "$(dirname "$0")/lib.sh"
step mutants cargo run --release --quiet -p xtask -- mutants "$@"
