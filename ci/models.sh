#!/usr/bin/env bash
# The loom models at their quick bounds; `ci/models.sh --deep` at the deep ones (an hour or more).
source "$(dirname "$0")/lib.sh"
step models cargo run --release --quiet -p xtask -- models \
    --require H1,H2,H3,H4,H5,H6,H7,H8,H9,H11,H14,H15,H16,H17,H18,H19,H20,H21,H22,H23,H24,H25,H26,H27,H28,H31,H32,I.1,I.2,I.4,I.6,I.7,I.9,I.10,I.12,I.13,I.14,I.15,I.16,I.17,I.18,I.20,I.23,I.24,I.26,I.27,I.28,I.29,I.33,I.34,I.35,FL.1,FL.2,FL.3,FL.4,FL.5,FL.6,FL.7,FL.13,FL.18,FL.19,FL.20,FL.21,FL.22,FL.23,FL.24,FL.25 "$@"
