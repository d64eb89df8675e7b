//! What users see of a queue and of its errors: texts, snapshots, what was chosen for them.
#![cfg(not(any(loom, shuttle)))]

use inflight_sbitmap::{
    BackEnd, BitMask, BuildError, Clock, Engine, Fairness, GetError, IdGuard, PutError, Sbitmap,
    SbitmapQueue, block_on,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

fn queue(depth: usize, fairness: Fairness) -> SbitmapQueue {
    let builder = SbitmapQueue::builder(depth).fairness(fairness);
    builder.build().unwrap()
}

#[test]
fn debug_of_a_queue_is_a_few_words_whatever_its_size() {
    for mode in [Fairness::batched(), Fairness::fair(), Fairness::fifo()] {
        let text = format!("{:?}", queue(4096, mode));
        assert!(text.starts_with("SbitmapQueue { depth: 4096, max_depth: 4096, fairness: "));
        assert!(text.len() < 160, "{text}");
    }
}

#[test]
fn a_queue_tells_what_was_chosen_for_it() {
    let shared = SbitmapQueue::builder(4096).engine(Engine::Shared);
    let shared = shared.build().unwrap();
    assert_eq!(shared.bits_per_word(), 64);
    assert_eq!(shared.fairness(), Fairness::fair());
    for engine in [Engine::Shared, Engine::Local] {
        let queue = SbitmapQueue::builder(4096).engine(engine).build().unwrap();
        assert_eq!(queue.bits_per_word(), queue.snapshot().map.bits_per_word);
        assert_eq!(queue.back_end(), queue.snapshot().back_end);
        let most = queue.try_get_mask(64).unwrap();
        assert!(most.count() <= queue.bits_per_word());
        queue.put_mask(most).unwrap();
    }
}

#[test]
fn timeouts_go_by_the_queues_own_clock() {
    let queue = SbitmapQueue::builder(1).clock(Clock::manual());
    let queue = queue.build().unwrap();
    let _taken = queue.try_get();
    assert!(queue.clock().is_manual());
    assert_eq!(queue.get_timeout(Duration::ZERO), Err(GetError::TimedOut));
}

#[test]
fn each_reason_against_the_local_engine_has_its_own_error() {
    let local = |depth| SbitmapQueue::builder(depth).engine(Engine::Local);
    let batched = local(8).fairness(Fairness::batched()).build().unwrap_err();
    let in_order = local(8).round_robin(true).build().unwrap_err();
    let deep = local(8).max_depth(65_537).build().unwrap_err();
    assert_eq!(batched, BuildError::BatchedNeedsShared);
    assert_eq!(in_order, BuildError::RoundRobinNeedsShared);
    assert!(matches!(deep, BuildError::DepthNeedsShared { .. }));
    let texts = [batched, in_order, deep].map(|e| e.to_string());
    for (text, word) in texts.iter().zip(["Batched", "round robin", "65536"]) {
        assert!(text.contains(word), "{text}");
    }
    // Left open, each of them is served by the shared engine.
    let deep = SbitmapQueue::builder(8).max_depth(65_537).build().unwrap();
    assert_eq!(deep.back_end(), BackEnd::Shared);
    let too_deep = SbitmapQueue::builder(8).max_depth(1 << 25).build();
    let text = too_deep.unwrap_err().to_string();
    assert!(text.contains("max_depth") && text.contains("16777216"));
}

#[test]
fn out_of_range_says_which_range() {
    let map = Sbitmap::builder(64).build().unwrap(); // words of 16
    let across = BitMask {
        first: 15,
        mask: 0b11,
    };
    let error = map.put(usize::MAX).unwrap_err();
    let text = format!("bit {} is not below max_depth", usize::MAX);
    assert_eq!(error.to_string(), text, "nothing about masks");
    let error = map.put_mask(across).unwrap_err();
    assert_eq!(error, PutError::BeyondWord { bit: 16 });
    let text = error.to_string();
    assert!(text.contains("16") && text.contains("mask") && text.contains("word"));
}

/// It says so in every build, and does not abort a thread that unwinds.
#[test]
fn a_guard_whose_bit_cannot_be_put() {
    for engine in [Engine::Shared, Engine::Local] {
        let queue = SbitmapQueue::builder(4).engine(engine).build().unwrap();
        for (bit, says) in [(2, "bit 2 "), (200, "bit 200 ")] {
            let guard = IdGuard::adopt(&queue, bit);
            let panic = catch_unwind(AssertUnwindSafe(|| drop(guard))).unwrap_err();
            let text = panic.downcast_ref::<String>().unwrap();
            assert!(text.contains(says), "{text}");
            let first = catch_unwind(AssertUnwindSafe(|| {
                let _guard = IdGuard::adopt(&queue, bit);
                panic!("first");
            }));
            let panic = first.unwrap_err();
            assert_eq!(panic.downcast_ref(), Some(&"first"));
        }
        assert_eq!(queue.weight(), 0);
        let all = queue.try_get_many(4).unwrap();
        assert_eq!(all.len(), 4, "and the queue is whole");
    }
}

#[test]
fn a_mask_at_the_end_of_the_numbers_does_not_begin_again_at_0() {
    let end = BitMask {
        first: usize::MAX,
        mask: 0b11,
    };
    assert_eq!(end.iter().collect::<Vec<_>>(), [usize::MAX]);
}

#[test]
fn a_snapshot_tells_who_has_bits_without_having_fetched_them() {
    for mode in [Fairness::fair(), Fairness::fifo()] {
        let queue = queue(3, mode);
        let held = block_on(queue.get_many(3)).unwrap();
        let mut cx = Context::from_waker(Waker::noop());
        let mut one = Box::pin(queue.get());
        let mut two = pin!(queue.get_many(2));
        assert!(one.as_mut().poll(&mut cx).is_pending());
        assert!(two.as_mut().poll(&mut cx).is_pending());

        queue.put(held[0]).unwrap(); // to `one`, which is not polled
        queue.put(held[1]).unwrap(); // to `two`, which wants another
        let seen = queue.snapshot();
        assert_eq!((seen.granted, seen.collected), (1, 1), "{mode:?}");
        assert_eq!((seen.ws_active, seen.map.busy), (1, 3));
        assert_eq!(queue.try_get(), None);

        drop(one); // its bit goes to `two`
        let seen = queue.snapshot();
        assert_eq!((seen.granted, seen.collected), (2, 0), "{mode:?}");
        assert_eq!(seen.ws_active, 0);
        assert!(two.as_mut().poll(&mut cx).is_ready());
        assert_eq!(queue.snapshot().granted, 0);
    }
}

#[test]
fn the_text_of_a_snapshot_names_mode_and_engine_and_no_limit() {
    let queue = SbitmapQueue::builder(8).max_depth(16);
    let queue = queue.engine(Engine::Shared).build().unwrap();
    let text = queue.snapshot().to_string();
    let end = "least_share=none\nmax_depth=16\nfairness=Fair\nback_end=Shared\n\
               granted=0\ncollected=0\n";
    assert!(text.ends_with(end), "{text}");
}

/// A snapshot may come from a file; a dump of nonsense must not panic, nor ask for all memory.
#[test]
fn a_damaged_snapshot_has_no_dump() {
    let whole = Sbitmap::builder(16).build().unwrap().snapshot();
    assert_eq!(whole.hex_dump(), "00000000: 0000\n");
    let damage: [fn(&mut inflight_sbitmap::Snapshot); 5] = [
        |s| s.bits_per_word = 0,
        |s| s.bits_per_word = 6400,
        |s| s.bits_per_word = 1 << 40,
        |s| s.bits_per_word = 3,
        |s| s.depth = usize::MAX,
    ];
    for damage in damage {
        let mut damaged = whole.clone();
        damaged.words[0] = 1;
        damage(&mut damaged);
        assert_eq!(damaged.hex_dump(), "");
    }
}
