//! A log that shares the domain of its device with other users: the system may tell one of them of
//! what the log has lost.
#![cfg(not(any(loom, shuttle)))]

use inflight_flush::log::{
    Durability, GroupMode, LogError, LogOptions, MemoryStorage, OpenError, OptionsError, Storage,
};
use inflight_flush::{Caps, Device, FlushDomain, Flusher, MemoryDevice, Power};
use inflight_sync::atomic::{AtomicBool, Ordering};
use inflight_sync::{Arc, block_on};
use std::future::ready;
use std::io;

const MODES: [GroupMode; 2] = [GroupMode::Off, GroupMode::Leader];
const CAPS: [Caps; 2] = [Caps::volatile(), Caps::volatile_with_fua()];

/// The system tells of a loss once, to whoever asks first. If that is another user of the domain,
/// the log's next flush succeeds without what was lost.
#[test]
fn a_flush_of_another_user_that_fails_fails_the_log() {
    for mode in MODES {
        for caps in CAPS {
            let storage = MemoryStorage::new(&Power::new()).with_caps(caps);
            let shared = FlushDomain::builder().build();
            let options = LogOptions::new().group_mode(mode).log_domain(&shared);
            let (log, _) = options.open(storage.clone()).unwrap();
            let lsn = log.try_append(b"record").unwrap();
            log.commit_blocking(lsn, Durability::Buffered).unwrap();
            let device = storage.devices()[0].clone();
            device.fail_flushes(1);
            block_on(shared.flush_with(|| ready(device.flush()))).unwrap_err();
            shared.clear_poison(); // that user's own business, and not the log's
            let failed = log.commit_blocking(lsn, Durability::Flushed);
            assert!(matches!(failed, Err(LogError::Poisoned(_))), "{failed:?}");
        }
    }
}

/// What is written to it is lost if `loses`, and another user's flush is told of that at once.
struct Losing {
    device: MemoryDevice,
    caps: Caps,
    others: FlushDomain,
    loses: Arc<AtomicBool>,
}

impl Flusher for Losing {
    fn flush(&self) -> io::Result<()> {
        self.device.flush()
    }

    fn caps(&self) -> Caps {
        self.caps
    }
}

impl Device for Losing {
    fn len(&self) -> io::Result<u64> {
        self.device.len()
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.device.read_at(bytes, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.device.write_at(bytes, offset)?;
        if self.loses.load(Ordering::Relaxed) {
            self.device.fail_flushes(1);
            let flushed = self.others.flush_with(|| ready(self.device.flush()));
            block_on(flushed).unwrap_err();
            self.others.clear_poison();
        }
        Ok(())
    }

    fn write_fua_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_at(bytes, offset)
    }
}

#[derive(Clone, Debug)]
struct LosingStorage {
    storage: MemoryStorage,
    caps: Caps,
    others: FlushDomain,
    loses: Arc<AtomicBool>,
}

impl LosingStorage {
    fn losing(&self, device: MemoryDevice) -> Arc<dyn Device> {
        Arc::new(Losing {
            device,
            caps: self.caps,
            others: self.others.clone(),
            loses: self.loses.clone(),
        })
    }
}

impl Storage for LosingStorage {
    fn segments(&self) -> io::Result<Vec<u64>> {
        self.storage.segments()
    }

    fn create(&self, number: u64, len: u64) -> io::Result<Arc<dyn Device>> {
        self.storage.create(number, len)?;
        let device = self.storage.devices().pop().expect("it was made");
        Ok(self.losing(device))
    }

    fn open(&self, number: u64) -> io::Result<Arc<dyn Device>> {
        let devices = self.storage.devices();
        Ok(self.losing(devices[number as usize].clone()))
    }

    fn remove(&self, number: u64) -> io::Result<()> {
        self.storage.remove(number)
    }
}

/// A durable write would be told that all is well, as another user has heard of the loss by then.
#[test]
fn a_loss_that_another_user_hears_of_amid_a_commit_fails_it() {
    for mode in MODES {
        for caps in CAPS {
            let shared = FlushDomain::builder().build();
            let storage = LosingStorage {
                storage: MemoryStorage::new(&Power::new()),
                caps,
                others: shared.clone(),
                loses: Arc::default(),
            };
            let loses = storage.loses.clone();
            let options = LogOptions::new().group_mode(mode).log_domain(&shared);
            let (log, _) = options.open(storage).unwrap();
            let lsn = log.try_append(b"kept").unwrap();
            log.commit_blocking(lsn, Durability::Flushed).unwrap();
            loses.store(true, Ordering::Relaxed);
            let lsn = log.try_append(b"lost").unwrap();
            let failed = log.commit_blocking(lsn, Durability::Flushed);
            assert_eq!(shared.failed_flushes(), 1);
            assert!(
                matches!(failed, Err(LogError::Poisoned(_))),
                "{mode:?} {caps:?} {failed:?}"
            );
        }
    }
}

/// Recovery writes again what is not known to be durable.
#[test]
fn a_loss_that_another_user_hears_of_amid_an_open_fails_it() {
    let shared = FlushDomain::builder().build();
    let storage = LosingStorage {
        storage: MemoryStorage::new(&Power::new()),
        caps: Caps::volatile(),
        others: shared.clone(),
        loses: Arc::default(),
    };
    let options = LogOptions::new().log_domain(&shared);
    let (log, _) = options.clone().open(storage.clone()).unwrap();
    let lsn = log.try_append(b"record").unwrap();
    log.commit_blocking(lsn, Durability::Buffered).unwrap();
    drop(log);
    storage.loses.store(true, Ordering::Relaxed);
    let opened = options.open(storage);
    assert!(matches!(opened, Err(OpenError::Io(_))), "{opened:?}");
}

/// The flush of `open` may be told of a loss of another user.
#[test]
fn the_flush_of_an_open_is_one_of_the_domain() {
    let shared = FlushDomain::builder().build();
    let storage = MemoryStorage::new(&Power::new());
    let options = LogOptions::new().log_domain(&shared);
    drop(options.clone().open(storage.clone()).unwrap());
    let flushes = shared.counters().issued;
    storage.devices()[0].fail_flushes(1);
    let opened = options.open(storage);
    assert!(matches!(opened, Err(OpenError::Io(_))), "{opened:?}");
    assert_eq!(shared.counters().issued, flushes + 1);
    assert_eq!(shared.failed_flushes(), 1);
}

#[test]
fn a_domain_that_the_log_cannot_use_is_refused() {
    let storage = MemoryStorage::new(&Power::new());
    let builder = || FlushDomain::builder().exclusive(true);
    for (options, expected) in [
        (
            LogOptions::new().log_domain(&builder().build()),
            OptionsError::ExclusiveLogDomain,
        ),
        (
            LogOptions::new().data_domain(&builder().build()),
            OptionsError::DataDomainWithoutDevice,
        ),
    ] {
        let refused = options.open(storage.clone());
        let is_right = matches!(&refused, Err(OpenError::Options(error)) if *error == expected);
        assert!(is_right, "{refused:?}");
    }
    let data = builder().device(MemoryDevice::new(4096));
    LogOptions::new().data_domain(&data).open(storage).unwrap();
}
