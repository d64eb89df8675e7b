//! A write that the kernel shortens breaks its link to the flush. In a process of its own, whose
//! files may not grow.
#![cfg(all(feature = "io-uring", target_os = "linux", not(any(loom, shuttle))))]

use inflight_flush::{Device, UringDevice};

/// As many bytes as a file of this process may have.
const LIMIT: u64 = 8192;

/// Files may not grow beyond that. What the test prints may go to a file, too.
fn limit_files(bytes: u64) {
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: no handler of ours is called: the signal is ignored from here on.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    // SAFETY: it reads the limit, which lives until it returns.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) };
    assert_eq!(set, 0);
}

/// Files may grow again when this is dropped.
struct Limited;

impl Drop for Limited {
    fn drop(&mut self) {
        limit_files(libc::RLIM_INFINITY);
    }
}

#[test]
fn a_write_that_is_cut_short_is_not_called_durable() {
    // A sandbox may have no rings.
    let Ok(device) = UringDevice::new(tempfile::tempfile().unwrap()) else {
        return;
    };
    limit_files(LIMIT);
    let _limited = Limited;
    device.write_fua_at(&[1; 4096], 0).unwrap();
    let failed = device.write_fua_at(&[2; 8192], 4096).unwrap_err();
    assert_eq!(failed.raw_os_error(), Some(libc::EFBIG), "{failed}");
    // The half of it that there was room for is there, as of any write that fails.
    let mut bytes = [0; 4096];
    device.read_at(&mut bytes, 4096).unwrap();
    assert_eq!((bytes[0], device.len().unwrap()), (2, LIMIT));
}
