//! A request is answered in time although its worker hangs.

use inflight::prelude::*;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

type Answer = mpsc::Sender<Result<u64, &'static str>>;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let answers: Arc<Mutex<HashMap<u64, Answer>>> = Arc::default();

    let system = WorkqueueSystem::builder().build()?;
    let files = system.workqueue("files").unbound(Attrs::new()).build()?;
    let set = TagSet::builder()
        .depth(8)
        .timeout(Duration::from_millis(20))
        .build(|_, _| ())?;
    let disk = set.add_tenant("disk0")?;

    let mut tag = disk.alloc_blocking()?;
    let (answer, client) = mpsc::channel();
    let mut map = answers.lock().unwrap(); // held, so the handler finds the answer
    let id = tag.track(); // the time begins
    map.insert(id, answer);
    drop(map);
    let (device_ends, device) = mpsc::channel::<()>();
    let write = files.spawn({
        let answers = answers.clone();
        move || {
            let _ = device.recv(); // in place of the write, which hangs
            let answer = answers.lock().unwrap().remove(&id);
            answer.map(|answer| answer.send(Ok(4096))); // `None`: the handler has answered
            drop(tag); // in use until here, so the buffer is no other request's
        }
    });
    let late = set.expired_blocking().expect("the set is open"); // a thread of its own does this
    let answer = answers.lock().unwrap().remove(&late.id());
    answer.map(|answer| answer.send(Err("timed out"))); // `None`: the worker has answered
    println!("{:?}", client.recv()?);
    drop(device_ends);
    write.wait()?;
    Ok(())
}
