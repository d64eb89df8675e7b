#!/usr/bin/env bash
# The library type-checks for systems other than this one, and with the oldest compiler it promises.
source "$(dirname "$0")/lib.sh"
published=(-p inflight -p inflight-sync -p inflight-topology -p inflight-sbitmap -p inflight-steering -p inflight-tags -p inflight-flush -p inflight-workqueue -p inflight-workqueue-serve)
for triple in aarch64-unknown-linux-gnu x86_64-pc-windows-msvc aarch64-apple-darwin; do
    if ! command -v rustup >/dev/null 2>&1; then
        skip "check $triple" "no rustup"
    elif ! rustup target add "$triple" >/dev/null 2>&1; then
        skip "check $triple" "the target cannot be had"
    else
        step "check $triple" cargo check --quiet --target "$triple" "${published[@]}"
    fi
done
msrv="$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)"
if command -v rustup >/dev/null 2>&1 && rustup toolchain install "$msrv" --profile minimal >/dev/null 2>&1; then
    step "msrv $msrv" cargo "+$msrv" check --quiet --target-dir "$target/msrv" "${published[@]}"
else
    skip "msrv $msrv" "the toolchain cannot be had"
fi
# What only models are built of has no other lint.
if component clippy; then checked=(clippy) strict=(-- -D warnings); else checked=(check) strict=(); fi
for back_end in loom shuttle; do
    step "${checked[*]} $back_end" env RUSTFLAGS="--cfg $back_end" \
        cargo "${checked[@]}" --quiet --target-dir "$target/$back_end" "${published[@]}" ${strict[@]+"${strict[@]}"}
done
