//! More waiters than ids, everybody stops: all finish. `ci/stop-cycles.sh` runs many more cycles.

use inflight_benches::{every_queue, stop};
use std::sync::Arc;

#[test]
fn everybody_finishes() {
    for ids in [1, 3] {
        for (name, queue) in every_queue(ids) {
            let ended = stop::cycles(&Arc::new(queue), 6, 150);
            assert!(ended.is_ok(), "{name}, {ids} ids: cycle {ended:?}");
        }
    }
}
