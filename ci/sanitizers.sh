#!/usr/bin/env bash
# The tests under ThreadSanitizer and AddressSanitizer, with a std built for them. Needs nightly; by hand.
source "$(dirname "$0")/lib.sh"
if ! cargo +nightly --version >/dev/null 2>&1 || ! component rust-src nightly; then
    skip sanitizers "nightly with rust-src cannot be had"
    exit 0
fi
host="$(rustc -vV | sed -n 's/^host: //p')"
crates=(-p inflight-sync -p inflight-sbitmap -p inflight-tags -p inflight-workqueue)
for sanitizer in ${*:-thread address}; do
    step "$sanitizer" env RUSTFLAGS="-Zsanitizer=$sanitizer" RUSTDOCFLAGS="-Zsanitizer=$sanitizer" \
        cargo +nightly test -Zbuild-std --target "$host" --target-dir "$target/$sanitizer" \
        --lib --tests "${crates[@]}"
done
