#!/usr/bin/env bash
# Every test of the workspace: unit, black-box, property and doc tests.
source "$(dirname "$0")/lib.sh"
step test cargo test --workspace
