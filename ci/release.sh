#!/usr/bin/env bash
# Whether the crates could be published today. By hand; builds each crate as a stranger would get it.
# What must be the same as at the last release is compared with the newest tag `v*`.
#
#   ci/release.sh [--allow-dirty]      as of cargo publish: also with changes that are not committed
source "$(dirname "$0")/lib.sh"

# What a registry shows, by `publish` of the house rules.
step manifests cargo run --release --quiet -p xtask -- tidy
if ! grep -q '^repository' Cargo.toml; then
    printf '\nnote: no repository is named: there is no public address yet. The READMEs link to pages\n'
    printf 'beside the crates, and on a registry these links lead nowhere until there is one.\n'
fi
if ! cargo hack --version >/dev/null 2>&1; then
    cargo install cargo-hack --locked --quiet || skip cargo-hack "it cannot be had: features by our own loop"
fi
step features ci/features.sh --pairs
step systems ci/cross.sh
step dependencies ci/deny.sh

last="$(git tag --list 'v*' --sort=-v:refname | head -1)"
if [ -z "$last" ]; then
    skip semver "nothing has been released: there is no tag v*"
elif cargo semver-checks --version >/dev/null 2>&1 || cargo install cargo-semver-checks --locked --quiet; then
    step semver cargo semver-checks --workspace --baseline-rev "$last"
else
    skip semver "cargo-semver-checks cannot be had"
fi

# The crates depend on each other and none is in a registry. With --workspace cargo packs them in order
# into a registry of its own and builds each package against those before it.
if cargo update --workspace --dry-run --quiet >/dev/null 2>&1; then
    step publish cargo publish --workspace --dry-run --quiet "$@"
else
    skip "build of the packages" "the registry is not reachable: they are packed only"
    step package cargo package --workspace --no-verify --offline --quiet "$@"
fi
