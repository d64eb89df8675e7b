//! What `--verify` finds, and what it does not take for an error.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::program::{Place, Ran, engines};

const BLOCK: u64 = 4096;

/// Writes a file named `f` of so many blocks from end to end.
fn write(place: &Place, engine: &str, kind: &str, blocks: u64) {
    place
        .run(&format!(
            "--filename f --size {} --number_ios {blocks} --rw write --verify {kind} \
             --engine {engine}",
            blocks * BLOCK
        ))
        .expect(0);
}

/// Reads so many blocks of it from its start.
fn read(place: &Place, engine: &str, blocks: u64, more: &str) -> Ran {
    place.run(&format!(
        "--json --filename f --number_ios {blocks} --rw read --engine {engine} {more}"
    ))
}

fn open(path: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap()
}

fn flip(path: &Path, place: u64) {
    let file = open(path);
    let mut byte = [0];
    file.read_exact_at(&mut byte, place).unwrap();
    file.write_all_at(&[byte[0] ^ 0x20], place).unwrap();
}

#[test]
fn a_flipped_byte_anywhere_in_a_block_is_named() {
    // Magic, offset, generation, checksum, header CRC, first and last byte of the data.
    let places = [0, 17, 24, 50, 125, 128, BLOCK - 1];
    for engine in engines() {
        for kind in ["crc32c", "sha256", "sha512"] {
            let place = Place::new();
            let verify = format!("--verify {kind}");
            write(&place, engine, kind, 8);
            for byte in places.map(|byte| 3 * BLOCK + byte) {
                flip(&place.path("f"), byte);
                let ran = read(&place, engine, 8, &verify).expect(1);
                let line = ran.stderr.lines().next().unwrap();
                assert!(line.contains("corrupted block at offset 12288: "), "{line}");
                assert!(
                    line.contains(": expected ") && line.contains(", found "),
                    "{line}"
                );
                let in_data = byte >= 3 * BLOCK + 128;
                assert_eq!(
                    line.contains(&format!("(byte {byte} is ")),
                    in_data,
                    "{line}"
                );
                assert_eq!(ran.json().count("verify_errors"), 1);
                assert_eq!(ran.json().count("verified_blocks"), 7);
                flip(&place.path("f"), byte);
            }
            read(&place, engine, 8, &verify).expect(0);
        }
    }
}

#[test]
fn a_block_in_the_wrong_place_is_corrupted() {
    let place = Place::new();
    write(&place, "psync", "crc32c", 4);
    let file = open(&place.path("f"));
    let mut block = vec![0; BLOCK as usize];
    file.read_exact_at(&mut block, BLOCK).unwrap();
    file.write_all_at(&block, 2 * BLOCK).unwrap();
    let ran = read(&place, "psync", 4, "--verify crc32c").expect(1);
    let expected = "offset 8192: offset in the header: expected 8192, found 4096";
    assert!(ran.stderr.contains(expected), "{ran:?}");
}

#[test]
fn a_zeroed_header_before_data_is_corrupted() {
    let place = Place::new();
    write(&place, "psync", "sha256", 2);
    open(&place.path("f"))
        .write_all_at(&[0; 128], BLOCK)
        .unwrap();
    let ran = read(&place, "psync", 2, "--verify sha256").expect(1);
    assert!(
        ran.stderr.contains("corrupted block at offset 4096: magic"),
        "{ran:?}"
    );
}

#[test]
fn the_first_ten_corrupted_blocks_are_named_and_all_are_counted() {
    let place = Place::new();
    write(&place, "psync", "crc32c", 32);
    (0..25).for_each(|block| flip(&place.path("f"), block * BLOCK + 1000));
    let ran = read(&place, "psync", 32, "--verify crc32c").expect(1);
    assert_eq!(
        ran.stderr.matches("corrupted block at offset").count(),
        10,
        "{ran:?}"
    );
    assert!(
        ran.stderr.contains("corrupted: 25 of 32 blocks read"),
        "{ran:?}"
    );
    assert_eq!(ran.json().count("verify_errors"), 25);
}

#[test]
fn blocks_never_written_are_no_error() {
    for engine in engines() {
        let place = Place::new();
        let file = "--filename f --size 256k --verify crc32c";
        place
            .run(&format!(
                "{file} --rw write --number_ios 10 --engine {engine}"
            ))
            .expect(0);
        let json = read(&place, engine, 64, "--verify crc32c").expect(0).json();
        assert_eq!(json.count("verified_blocks"), 10);
        assert_eq!(json.count("never_written_blocks"), 54);
    }
}

#[test]
fn without_verify_a_reader_does_not_look() {
    let place = Place::new();
    write(&place, "psync", "crc32c", 4);
    flip(&place.path("f"), 5000);
    let json = read(&place, "psync", 4, "").expect(0).json();
    assert_eq!(json.count("verified_blocks"), 0);
    assert_eq!(json.count("read_ios"), 4);
}

#[test]
fn reading_with_other_options_than_written_is_refused() {
    let place = Place::new();
    write(&place, "psync", "crc32c", 16);
    for other in [
        "--verify sha256",
        "--verify crc32c --bs 8k",
        "--verify crc32c --bs 2k",
    ] {
        let ran = read(&place, "psync", 4, other).expect(2);
        let ran = ran.complains("f: the file was written with --bs 4096 --verify crc32c");
        assert_eq!(ran.stdout, "");
    }
}

#[test]
fn split_blocks_arrive_whole() {
    for engine in engines() {
        let place = Place::new();
        let job = |rw: &str, max_split: u64| {
            let ran = place.run(&format!(
                "--json --filename f --size 4m --bs 64k --verify sha512 --number_ios 64 \
                 --iodepth 4 --rw {rw} --max-split {max_split} --engine {engine}"
            ));
            ran.expect(0).json()
        };
        let wrote = job("write", 3);
        assert_eq!(wrote.count("write_ios"), 64);
        assert_eq!(
            wrote.count("requests"),
            64 * 22,
            "64 KiB are 22 pieces of up to 3 KiB"
        );
        for (max_split, pieces) in [(64, 1), (100, 1), (24, 3)] {
            let read = job("randread", max_split);
            assert_eq!(read.count("requests"), 64 * pieces);
            assert_eq!(read.count("verified_blocks"), 64);
        }
        let mixed = job("randrw", 5);
        assert_eq!(mixed.count("verify_errors"), 0);
        assert_eq!(mixed.count("never_written_blocks"), 0);
    }
}

/// What was found before the ramp was over counts, and so do the blocks it was found among.
#[test]
fn corrupted_blocks_are_told_beside_all_that_were_checked() {
    let place = Place::new();
    write(&place, "psync", "crc32c", 8);
    for block in 0..8 {
        flip(&place.path("f"), block * BLOCK + 200);
    }
    let ran = place.run(
        "--json --filename f --rw randread --verify crc32c --ramp_time 0.2 --runtime 0.001 \
         --engine psync",
    );
    let ran = ran.expect(1);
    let bad = ran.json().count("verify_errors");
    let told = format!("io-engine: corrupted: {bad} of {bad} blocks read");
    assert_eq!(ran.stderr.lines().next_back(), Some(told.as_str()));
}
