#!/usr/bin/env bash
# The loom models at their quick bounds; `ci/models.sh --deep` at the deep ones (an hour or more).
source "$(dirname "$0")/lib.sh"
step models cargo run --release --quiet -p xtask -- models \
    --require H1,H2,H3,H4,H6,H8,H18,H24,I.1,I.2,I.9,I.26 "$@"
