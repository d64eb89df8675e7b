#!/usr/bin/env bash
# Every test of the workspace: unit, black-box, property and doc tests.
source "$(dirname "$0")/lib.sh"
# A test that hangs should end this run and not the machine's patience.
limit=()
if command -v timeout >/dev/null 2>&1; then limit=(timeout 2400); fi
step test "${limit[@]}" cargo test --workspace
