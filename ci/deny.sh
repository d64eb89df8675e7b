#!/usr/bin/env bash
# Licences, duplicates and sources of the dependencies. By hand: builds cargo-deny if it is missing.
# Advisories need their database, which lies at an address of its own: that is fetched, or a copy of an
# earlier fetch is taken, or the check is skipped with the reason.
source "$(dirname "$0")/lib.sh"
if ! cargo deny --version >/dev/null 2>&1 && ! cargo install cargo-deny --locked; then
    skip deny "cargo-deny cannot be had"
    exit 0
fi
step deny cargo deny check bans licenses sources
if cargo deny fetch db >/dev/null 2>&1; then
    step advisories cargo deny check advisories
elif [ -n "$(ls -d "${CARGO_HOME:-$HOME/.cargo}"/advisory-db*/*/ 2>/dev/null)" ]; then
    step advisories cargo deny --offline check advisories
else
    skip advisories "the advisory database cannot be fetched, and there is no copy of it"
fi
