#!/usr/bin/env bash
# Licences, duplicates and sources of the dependencies. By hand: builds cargo-deny if it is missing.
source "$(dirname "$0")/lib.sh"
if ! cargo deny --version >/dev/null 2>&1 && ! cargo install cargo-deny --locked; then
    skip deny "cargo-deny cannot be had"
    exit 0
fi
step deny cargo deny check bans licenses sources
