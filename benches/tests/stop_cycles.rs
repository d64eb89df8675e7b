//! More waiters than ids, everybody stops: all finish. `ci/stop-cycles.sh` runs many more cycles.

use inflight_benches::{every_queue, stop};

#[test]
fn everybody_finishes() {
    for ids in [1, 3] {
        for (name, queue) in every_queue(ids) {
            assert_eq!(stop::cycles(queue, 6, 150), Ok(()), "{name}, {ids} ids");
        }
    }
}
