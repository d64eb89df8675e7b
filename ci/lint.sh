#!/usr/bin/env bash
# Formatting, clippy, documentation, house rules.
source "$(dirname "$0")/lib.sh"
if component rustfmt; then step fmt cargo fmt --all --check; else skip fmt "rustfmt cannot be had"; fi
if component clippy; then
    step clippy cargo clippy --workspace --all-targets -- -D warnings
else
    skip clippy "clippy cannot be had"
fi
step docs env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet
step tidy cargo run --release --quiet -p xtask -- tidy
