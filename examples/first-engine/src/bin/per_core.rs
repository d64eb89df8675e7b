//! An engine with a thread and a ring for each CPU: counts the lines of `Cargo.toml`.

use inflight::prelude::*;
use io_uring::{IoUring, opcode, types};
use nix::{libc::POLLIN, sys::eventfd::EventFd};
use std::os::fd::{AsFd, AsRawFd};
use std::task::{Context, Poll, Wake, Waker};
use std::{fs::File, future::Future, pin::Pin, sync::Arc, thread};

type Error = Box<dyn std::error::Error + Send + Sync>;

struct RingWaker(EventFd);

impl Wake for RingWaker {
    fn wake(self: Arc<Self>) {
        let _ = self.0.write(1); // the poll in the ring completes, also one that comes later
    }
}

fn main() -> Result<(), Error> {
    let (file, topo) = (File::open("Cargo.toml")?, Topology::discover()?); // before any pinning
    let (size, cpus) = (file.metadata()?.len(), topo.cpus());
    let builder = TagSet::builder().topology(&topo).hw_queues(cpus.len());
    let set = builder.depth(8).build(|_, _| [0; 512])?; // 8 tags for each CPU
    let disk = set.add_tenant("disk0")?;
    let system = WorkqueueSystem::builder().topology(&topo).build()?;
    let sums = system.workqueue("sums").bound().build()?;
    let count = |cpu| -> Result<usize, Error> {
        let _pin = topo.pin_current_thread(&CpuSet::from([cpu]))?;
        let queue = set.hw_queues().of_cpu(cpu); // no other CPU has it
        let take = || disk.try_alloc_with(AllocOptions::new().hw_queue(queue));
        let mut ring = IoUring::new(8 + 1)?; // the tags and the poll
        let waker = Arc::new(RingWaker(EventFd::new()?));
        let (event, waker) = (&waker.0, Waker::from(waker.clone()));
        let poll = opcode::PollAdd::new(types::Fd(event.as_fd().as_raw_fd()), POLLIN as u32);
        let poll = poll.build().user_data(0); // no token is 0
        let (mut next, mut busy, mut lines) = (queue as u64 * 512, 0, 0);
        let (mut handles, mut woken) = (Vec::new(), true);
        while next < size || busy > 0 {
            while next < size {
                let Ok(tag) = take() else { break };
                let entry = tag.into_token_with(|buffer, token| {
                    let fd = types::Fd(file.as_raw_fd());
                    let read = opcode::Read::new(fd, buffer.as_mut_ptr(), 512);
                    read.offset(next).build().user_data(token)
                });
                // SAFETY: the buffer lies in the slot, which stays until its token is redeemed.
                unsafe { ring.submission().push(&entry)? };
                (next, busy) = (next + cpus.len() as u64 * 512, busy + 1);
            }
            if std::mem::take(&mut woken) {
                // SAFETY: a poll has no buffer.
                unsafe { ring.submission().push(&poll)? };
            }
            ring.submit_and_wait(1)?; // the thread sleeps here only
            for cqe in ring.completion() {
                if cqe.user_data() == 0 {
                    woken = event.read()? > 0; // from here on the next wake counts
                    continue;
                }
                let tag = set.redeem(cqe.user_data())?;
                let n = usize::try_from(cqe.result())?;
                handles.push(sums.spawn(move || tag[..n].iter().filter(|&&b| b == b'\n').count()));
            }
            for i in (0..handles.len()).rev() {
                let handle = Pin::new(&mut handles[i]);
                if let Poll::Ready(sum) = handle.poll(&mut Context::from_waker(&waker)) {
                    (lines, busy) = (lines + sum?, busy - 1);
                    drop(handles.swap_remove(i));
                }
            }
        }
        Ok(lines)
    };
    let lines = thread::scope(|scope| {
        let start = |cpu| scope.spawn(move || count(cpu));
        let threads: Vec<_> = cpus.iter().map(start).collect();
        let ends = threads.into_iter().map(|thread| thread.join().unwrap());
        ends.sum::<Result<usize, Error>>()
    })?;
    println!("{lines} lines");
    system.shutdown_blocking()?;
    Ok(())
}
