#!/usr/bin/env bash
# Each fuzz target for SECONDS (default 60), on stable without a sanitizer. By hand.
source "$(dirname "$0")/lib.sh"
seconds="${1:-60}"
if ! cargo fuzz --version >/dev/null 2>&1 && ! cargo install cargo-fuzz --locked; then
    skip fuzz "cargo-fuzz cannot be had"
    exit 0
fi
for file in fuzz/fuzz_targets/*.rs; do
    name="$(basename "$file" .rs)"
    step "fuzz $name" cargo fuzz run -s none "$name" -- -max_total_time="$seconds"
done
