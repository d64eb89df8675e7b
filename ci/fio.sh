#!/usr/bin/env bash
# io-engine beside fio: the same file, the same load, by turns; the ratio of IOPS, ours / fio's,
# by median. `ci/fio.sh [TURNS] [SECONDS]`: 9 turns of 1 second for each of 30 cells, some ten
# minutes. FOLDER says where the file lies, CELLS which rows ("direct randwrite"), DEPTHS which columns
# ("1 16"), SIZE how large, ENGINE which one fio uses (io_uring).
source "$(dirname "$0")/lib.sh"
if ! have fio; then skip fio "fio is not installed"; exit 0; fi
if ! have python3; then skip fio "python3 is not installed"; exit 0; fi
step build cargo build --release --quiet -p io-engine
folder="$(mktemp -d "${FOLDER:-$target}/fio.XXXXXX")"
trap 'rm -rf "$folder"' EXIT
python3 ci/fio.py "$target/release/io-engine" "$folder/file" "${1:-9}" "${2:-1}"
