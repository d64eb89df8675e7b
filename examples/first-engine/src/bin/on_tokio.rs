//! An engine on tokio: counts the lines of `Cargo.toml`.

use inflight::prelude::*;
use std::{fs::File, os::unix::fs::FileExt, sync::Arc};

type Error = Box<dyn std::error::Error + Send + Sync>;

async fn lines_of(
    disk: Tenant<[u8; 512]>,
    reads: Workqueue,
    file: Arc<File>,
    offset: u64,
) -> Result<usize, Error> {
    let mut tag = disk.alloc().await?; // a dropped future loses neither a tag nor a wakeup
    let read = reads.spawn(move || {
        let n = blocking(|| file.read_at(&mut *tag, offset))?;
        Ok::<_, std::io::Error>(tag[..n].iter().filter(|&&b| b == b'\n').count())
    });
    Ok(read.await??)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let file = Arc::new(File::open("Cargo.toml")?);
    let size = file.metadata()?.len();
    let set = TagSet::builder().depth(8).build(|_, _| [0; 512])?;
    let disk = set.add_tenant("disk0")?;
    let system = WorkqueueSystem::builder().build()?;
    let reads = system
        .workqueue("reads")
        .unbound(Attrs::new())
        .max_active(4)
        .build()?;
    let tasks: Vec<_> = (0..size)
        .step_by(512)
        .map(|at| tokio::spawn(lines_of(disk.clone(), reads.clone(), file.clone(), at)))
        .collect();
    let mut lines = 0;
    for task in tasks {
        lines += task.await??;
    }
    println!("{lines} lines");
    system.shutdown().await?; // blocks no thread of the runtime
    Ok(())
}
