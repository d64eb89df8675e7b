//! Devices: what they keep, and what they say when they cannot.
#![cfg(not(any(loom, shuttle)))]

use inflight_flush::{Caps, Device, FileDevice, Flusher, MemoryDevice, Power};
use std::io::ErrorKind;

/// What every device does.
fn holds_what_is_written(device: &dyn Device) {
    let long: Vec<u8> = (0..100_000_u32).map(|n| (n % 251) as u8).collect();
    device.write_at(&long, 777).unwrap();
    device.write_fua_at(&long[..5000], 200_001).unwrap();
    device.write_fua_at(&[], 0).unwrap();
    device.flush().unwrap();
    let mut read = vec![0; long.len()];
    device.read_at(&mut read, 777).unwrap();
    assert_eq!(read, long);
    device.read_at(&mut read[..5000], 200_001).unwrap();
    assert_eq!(read[..5000], long[..5000]);
    let end = device.len().unwrap();
    let beyond = device.read_at(&mut read[..2], end - 1).unwrap_err();
    assert_eq!(beyond.kind(), ErrorKind::UnexpectedEof);
}

fn file() -> std::fs::File {
    let file = tempfile::tempfile().unwrap();
    file.set_len(1 << 20).unwrap();
    file
}

#[test]
fn files_hold_what_is_written() {
    holds_what_is_written(&FileDevice::new(file()));
}

#[test]
fn memory_holds_what_is_written() {
    for caps in [Caps::volatile(), Caps::volatile_with_fua(), Caps::durable()] {
        holds_what_is_written(&MemoryDevice::new(1 << 20).with_caps(caps));
    }
}

#[cfg(all(feature = "io-uring", target_os = "linux"))]
#[test]
fn rings_hold_what_is_written() {
    // A sandbox may have no rings.
    let Ok(device) = inflight_flush::UringDevice::new(file()) else {
        return;
    };
    holds_what_is_written(&device);
}

/// A link that breaks: the flush behind a write that failed has not flushed, and says so.
#[cfg(all(feature = "io-uring", target_os = "linux"))]
#[test]
fn a_ring_says_when_a_write_fails() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("read-only");
    std::fs::write(&path, [0; 4096]).unwrap();
    let Ok(device) = inflight_flush::UringDevice::new(std::fs::File::open(path).unwrap()) else {
        return;
    };
    assert!(device.write_fua_at(&[1; 512], 0).is_err());
    assert!(device.write_at(&[1; 512], 0).is_err());
    device.flush().unwrap();
}

/// Segments of a folder, each through rings of its own.
#[cfg(all(feature = "io-uring", target_os = "linux"))]
mod ring_log {
    use inflight_flush::log::{DirStorage, Durability, GroupMode, LogOptions, Storage};
    use inflight_flush::{Device, FlushDomain, UringDevice};
    use inflight_sync::{Arc, thread};
    use std::fs::OpenOptions;
    use std::io;
    use std::path::PathBuf;

    #[derive(Debug)]
    struct Rings(DirStorage, PathBuf);

    impl Storage for Rings {
        fn segments(&self) -> io::Result<Vec<u64>> {
            self.0.segments()
        }

        fn create(&self, number: u64, len: u64) -> io::Result<Arc<dyn Device>> {
            drop(self.0.create(number, len)?);
            self.open(number)
        }

        fn open(&self, number: u64) -> io::Result<Arc<dyn Device>> {
            let path = self.1.join(format!("{number:016x}.log"));
            let file = OpenOptions::new().read(true).write(true).open(path)?;
            Ok(Arc::new(UringDevice::new(file)?))
        }

        fn remove(&self, number: u64) -> io::Result<()> {
            self.0.remove(number)
        }
    }

    fn there_are_rings() -> bool {
        UringDevice::new(tempfile::tempfile().unwrap()).is_ok()
    }

    #[test]
    fn a_log_goes_through_rings() {
        if !there_are_rings() {
            return;
        }
        for mode in [GroupMode::Off, GroupMode::Leader, GroupMode::Auto] {
            let folder = tempfile::tempdir().unwrap();
            let options = || LogOptions::new().group_mode(mode).segment_size(64 << 10);
            let rings = || {
                Rings(
                    DirStorage::new(folder.path()).unwrap(),
                    folder.path().into(),
                )
            };
            let (log, _) = options().open(rings()).unwrap();
            let threads: Vec<_> = (0..3_u8)
                .map(|id| {
                    let log = log.clone();
                    thread::spawn(move || {
                        for n in 0..60_u8 {
                            let lsn = log.append_blocking(&[vec![id, n], vec![7; 500]].concat());
                            log.commit_blocking(lsn.unwrap(), Durability::Flushed)
                                .unwrap();
                        }
                    })
                })
                .collect();
            threads
                .into_iter()
                .for_each(|thread| thread.join().unwrap());
            drop(log);
            let (_, found) = options().open(rings()).unwrap();
            assert_eq!(found.records.len(), 180, "{mode:?}");
        }
    }

    #[test]
    fn a_domain_goes_through_a_ring() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        let Ok(device) = UringDevice::new(file) else {
            return;
        };
        let device = Arc::new(device);
        let domain = FlushDomain::new(device.clone());
        let threads: Vec<_> = (0..3_u64)
            .map(|id| {
                let (device, domain) = (device.clone(), domain.clone());
                thread::spawn(move || {
                    for n in 0..30 {
                        let at = (id * 30 + n) * 512;
                        device.write_at(&[7; 512], at).unwrap();
                        domain.flush_blocking().unwrap();
                        domain
                            .write_fua_blocking(|| device.write_fua_at(&[8; 512], at))
                            .unwrap();
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        let mut bytes = vec![0; 90 * 512];
        device.read_at(&mut bytes, 0).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 8));
        assert_eq!(domain.counters().merged, 90);
    }
}

#[test]
fn what_was_flushed_survives_and_what_was_not_may_not() {
    let device = MemoryDevice::new(4096);
    device.write_at(&[1; 1024], 0).unwrap();
    device.flush().unwrap();
    device.write_at(&[2; 1024], 0).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..64 {
        let mut bytes = [0; 1024];
        let after = device.restart(&Power::new(), seed);
        after.read_at(&mut bytes, 0).unwrap();
        assert!(
            bytes[..512].iter().all(|&b| b == bytes[0]),
            "sectors are whole"
        );
        seen.insert((bytes[0], bytes[1023]));
    }
    // Each of the two sectors by itself.
    assert_eq!(Vec::from_iter(seen), [(1, 1), (1, 2), (2, 1), (2, 2)]);
}

/// As systems do: what a failed flush was to write is dropped, and the next one succeeds without
/// it.
#[test]
fn a_failed_flush_loses_what_was_cached() {
    let device = MemoryDevice::new(4096);
    device.write_at(&[1; 512], 0).unwrap();
    device.fail_flushes(1);
    device.flush().unwrap_err();
    device.flush().unwrap();
    let mut bytes = [9; 512];
    device.read_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, [0; 512]);
}

#[test]
fn faults_come_as_they_were_ordered() {
    let power = Power::new();
    let device = MemoryDevice::on(&power, 4096);
    assert_eq!(
        device.write_at(&[1], 4096).unwrap_err().kind(),
        ErrorKind::StorageFull
    );
    device.fail_writes(1);
    device.write_at(&[1], 0).unwrap_err();
    device.write_at(&[1], 0).unwrap();
    assert_eq!(power.steps(), 1);
    power.cut_at(2);
    let torn = device.write_at(&[7; 1536], 0);
    assert_eq!(torn.unwrap_err().kind(), ErrorKind::NotConnected);
    assert!(power.is_cut());
    device.flush().unwrap_err();
}

/// The kernel takes an offset of -1 for the file's cursor.
fn refuses_what_no_file_has(device: &dyn Device) {
    device.write_at(b"as it was", 0).unwrap();
    for offset in [u64::MAX, u64::MAX - 3, i64::MAX as u64] {
        let mut bytes = [0; 9];
        device.read_at(&mut bytes, offset).unwrap_err();
        device.write_at(b"another", offset).unwrap_err();
        device.write_fua_at(b"another", offset).unwrap_err();
        device.read_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"as it was", "{offset:x}");
    }
}

#[test]
fn an_offset_that_no_file_has_is_refused() {
    refuses_what_no_file_has(&FileDevice::new(file()));
    refuses_what_no_file_has(&MemoryDevice::new(4096));
    #[cfg(all(feature = "io-uring", target_os = "linux"))]
    if let Ok(device) = inflight_flush::UringDevice::new(file()) {
        refuses_what_no_file_has(&device);
    }
}
