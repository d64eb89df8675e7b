//! An engine on io_uring: counts the lines of `Cargo.toml`.

use inflight::prelude::*;
use io_uring::{IoUring, opcode, types};
use std::{fs::File, os::fd::AsRawFd};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = File::open("Cargo.toml")?;
    let size = file.metadata()?.len();
    let set = TagSet::builder().depth(8).build(|_, _| [0; 512])?;
    let disk = set.add_tenant("disk0")?;
    let mut ring = IoUring::new(8)?;
    let (mut next, mut done, mut lines) = (0, 0, 0);
    while done < size {
        // Submit while there is work and a tag for it. `alloc().await` would wait for one.
        while next < size {
            let Ok(tag) = disk.try_alloc() else { break };
            let entry = tag.into_token_with(|buffer, token| {
                let fd = types::Fd(file.as_raw_fd());
                let read = opcode::Read::new(fd, buffer.as_mut_ptr(), 512);
                read.offset(next).build().user_data(token)
            });
            // SAFETY: the buffer lies in the slot, which stays until its token is redeemed.
            unsafe { ring.submission().push(&entry)? };
            next += 512;
        }
        ring.submit_and_wait(1)?;
        for cqe in ring.completion() {
            let tag = set.redeem(cqe.user_data())?; // ours again; a wrong token is an error
            let n = usize::try_from(cqe.result())?;
            lines += tag[..n].iter().filter(|&&b| b == b'\n').count();
            done += n as u64;
        } // each tag is dropped: free for the next
    }
    println!("{lines} lines");
    Ok(())
}
