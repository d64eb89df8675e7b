//! The correct ring on real threads.
#![cfg(not(loom))]

use loom_downstream::Ring;
use std::sync::Arc;

#[test]
fn every_request_arrives_in_order() {
    const REQUESTS: u32 = 10_000;
    let ring = Arc::new(Ring::<false>::new(4));
    let producer = std::thread::spawn({
        let ring = ring.clone();
        move || (0..REQUESTS).for_each(|request| ring.submit(request))
    });
    for request in 0..REQUESTS {
        assert_eq!(ring.next(), request);
    }
    producer.join().unwrap();
}
