//! Files that no log has written, with checksums that are right.

#![cfg(all(unix, not(any(loom, shuttle))))]

use inflight_flush::log::{DirStorage, LogOptions, Lsn, OpenError, Recovery};
use std::fs;
use std::path::Path;

const LOG: u64 = 7;

/// A header of the format: magic, checksum of the rest, fields, zeros.
fn seal<const N: usize>(magic: [u8; 4], fields: &[u64]) -> [u8; N] {
    let mut header = [0; N];
    header[..4].copy_from_slice(&magic);
    for (at, field) in header[8..].chunks_exact_mut(8).zip(fields) {
        at.copy_from_slice(&field.to_le_bytes());
    }
    let sum = crc32c::crc32c(&header[8..]);
    header[4..8].copy_from_slice(&sum.to_le_bytes());
    header
}

/// A segment with one frame of empty records.
fn segment(number: u64, base: u64, records: u64) -> Vec<u8> {
    const VERSION: u64 = 1;
    let mut bytes = seal::<64>(*b"IFLS", &[VERSION, LOG, number, base, base]).to_vec();
    bytes.extend(seal::<56>(
        *b"IFLF",
        &[LOG, 64, base, 0, base, 16 * records],
    ));
    for n in 0..records {
        let start = base.wrapping_add(16 * n);
        let sum = crc32c::crc32c_append(crc32c::crc32c(&start.to_le_bytes()), &[0; 16]);
        bytes.extend([[0; 4], sum.to_le_bytes(), [0; 4], [0; 4]].concat());
    }
    bytes
}

fn open(folder: &Path) -> Result<Recovery, OpenError> {
    let opened = LogOptions::new().open(DirStorage::new(folder)?);
    opened.map(|(_, found)| found)
}

fn open_with(number: u64, bytes: &[u8]) -> Result<Recovery, OpenError> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(format!("{number:016x}.log")), bytes).unwrap();
    open(folder.path())
}

#[test]
fn positions_and_numbers_that_no_log_reaches_are_corruption() {
    let found = open_with(5, &segment(5, 1 << 40, 2)).unwrap();
    assert_eq!(
        (found.records.len(), found.end),
        (2, Lsn::from((1 << 40) + 32))
    );
    for base in [1 << 63, u64::MAX - 40, u64::MAX - 20, u64::MAX] {
        let found = open_with(0, &segment(0, base, 2));
        assert!(
            matches!(found, Err(OpenError::Corrupt(_))),
            "{base}: {found:?}"
        );
    }
    for number in [u64::MAX - 1, u64::MAX] {
        let found = open_with(number, &segment(number, 0, 1));
        assert!(
            matches!(found, Err(OpenError::Corrupt(_))),
            "{number}: {found:?}"
        );
    }
}

/// It is not read into memory, nor looked through.
#[test]
fn a_file_longer_than_any_segment_is_corruption() {
    for head in [segment(0, 0, 1), vec![]] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0000000000000000.log");
        fs::write(&path, head).unwrap();
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_len(4 << 40).unwrap();
        let found = open(folder.path());
        assert!(matches!(found, Err(OpenError::Corrupt(_))), "{found:?}");
    }
}
