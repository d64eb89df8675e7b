#!/usr/bin/env bash
# The published crates compile with none of their features, with each alone and with all; and what a
# feature adds passes its tests, with all others on: a feature may change what the others rely on.
#
#   ci/features.sh             as above
#   ci/features.sh --pairs     also with each pair of features
source "$(dirname "$0")/lib.sh"
pairs=false
if [ "${1:-}" = --pairs ]; then pairs=true; fi

published=(inflight inflight-sync inflight-topology inflight-sbitmap inflight-steering inflight-tags inflight-flush
    inflight-workqueue inflight-workqueue-serve inflight-wq)

# features CRATE: the names below [features] of its manifest.
features() {
    local manifest="crates/${1#inflight-}/Cargo.toml"
    [ -e "$manifest" ] || manifest="crates/$1/Cargo.toml"
    sed -n '/^\[features\]/,/^\[[^f]/s/^\([a-z][a-z0-9-]*\) *=.*/\1/p' "$manifest"
}

# by_hand CRATE: with none, each, each pair.
by_hand() {
    local all=() first second
    mapfile -t all < <(features "$1")
    cargo check --quiet -p "$1" --no-default-features || return 1
    for first in ${all[@]+"${all[@]}"}; do
        cargo check --quiet -p "$1" --features "$first" || return 1
        $pairs || continue
        for second in "${all[@]}"; do
            [[ "$first" < "$second" ]] || continue
            cargo check --quiet -p "$1" --features "$first,$second" || return 1
        done
    done
}

packages=()
for crate in "${published[@]}"; do packages+=(-p "$crate"); done
if cargo hack --version >/dev/null 2>&1; then
    depth=1
    if $pairs; then depth=2; fi
    step features cargo hack check --quiet --feature-powerset --depth "$depth" "${packages[@]}"
else
    for crate in "${published[@]}"; do step "features of $crate" by_hand "$crate"; done
fi
step "all features" cargo check --quiet --all-features "${packages[@]}"
step "test all features" cargo test --quiet -p inflight-workqueue --all-features
step "test inflight-tags/futures" cargo test --quiet -p inflight-tags --all-features --test split_stream
step "test inflight-flush/io-uring" cargo test --quiet -p inflight-flush --all-features --doc
step "test the devices of inflight-flush" cargo test --quiet -p inflight-flush --all-features --test devices --test uring_short_write
step "test the rings of inflight-flush" cargo test --quiet -p inflight-flush --all-features --lib uring
step "test the metrics of inflight" cargo test --quiet -p inflight --features metrics --test metrics
