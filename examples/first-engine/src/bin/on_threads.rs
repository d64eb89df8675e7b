//! An engine on plain threads: counts the lines of `Cargo.toml`.

use inflight::prelude::*;
use std::{fs::File, os::unix::fs::FileExt, sync::Arc};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = Arc::new(File::open("Cargo.toml")?);
    let size = file.metadata()?.len();
    let set = TagSet::builder().depth(8).build(|_, _| [0; 512])?;
    let disk = set.add_tenant("disk0")?;
    let system = WorkqueueSystem::builder().build()?; // no thread until work comes
    let reads = system
        .workqueue("reads")
        .unbound(Attrs::new())
        .max_active(4)
        .build()?;

    let mut handles = Vec::new();
    for offset in (0..size).step_by(512) {
        let mut tag = disk.alloc_blocking()?; // waits while 8 blocks are in flight
        let file = Arc::clone(&file);
        handles.push(reads.spawn(move || {
            // The read may sleep: because of `blocking` another item of the queue runs meanwhile.
            let n = blocking(|| file.read_at(&mut *tag, offset))?;
            Ok::<_, std::io::Error>(tag[..n].iter().filter(|&&b| b == b'\n').count())
        })); // the tag is dropped at the end of the closure: free for the next block
    }
    let mut lines = 0;
    for handle in handles {
        lines += handle.wait()??; // the first `?` is a panic of the closure, the second its error
    }
    println!("{lines} lines");
    Ok(())
}
