//! What is refused at once, and what the refusal says.
#![cfg(not(any(loom, shuttle)))]

use inflight_tags::{
    Admission, AllocError, AllocOptions, BuildError, Clock, DrainError, Engine, HwQueueOptions,
    RedeemError, ResizeError, SharePolicy, Tag, TagSet, TenantError, Topology, WeightError,
};
use std::time::Duration;

#[test]
fn numbers_that_contradict_each_other() {
    let build = TagSet::builder().depth(8).max_depth(4).build(|_, _| ());
    let error = build.unwrap_err();
    assert_eq!(
        error,
        BuildError::MaxDepth {
            max_depth: 4,
            depth: 8
        }
    );
    let said = error.to_string();
    assert!(said.contains('4') && said.contains('8'), "{said}");
    let rings = HwQueueOptions::new(4).max(2);
    let error = TagSet::builder().hw_queues(rings).build(|_, _| ());
    let error = error.unwrap_err();
    assert_eq!(
        error,
        BuildError::MaxHwQueues {
            max_hw_queues: 2,
            hw_queues: 4
        }
    );
    let set = TagSet::builder().admission(Admission::preempt());
    let error = set.engine(Engine::Local).build(|_, _| ());
    assert_eq!(error.unwrap_err(), BuildError::BatchedNeedsShared);
    let none = TagSet::builder().depth(0).build(|_, _| ()).unwrap_err();
    assert_eq!(none, BuildError::Depth { depth: 0 });
}

#[test]
fn two_tenants_of_one_name() {
    let set = TagSet::builder().build(|_, _| ()).unwrap();
    let first = set.add_tenant("sda").unwrap();
    let again = set.add_tenant("sda").unwrap_err();
    let sda = TenantError::NameTaken { name: "sda".into() };
    assert_eq!(again, sda);
    assert_eq!(
        again.to_string(),
        "the tag set already has a tenant named \"sda\""
    );
    let clone = first.clone();
    drop(first);
    assert_eq!(set.add_tenant("sda").unwrap_err(), sda, "a handle is left");
    drop(clone);
    set.add_tenant("sda").unwrap();
}

#[test]
fn names_that_no_tenant_may_have() {
    let set = TagSet::builder().build(|_, _| ()).unwrap();
    assert_eq!(set.add_tenant("").unwrap_err(), TenantError::EmptyName);
    let bytes = 8193;
    let long = set.add_tenant("x".repeat(bytes)).unwrap_err();
    assert_eq!(long, TenantError::NameTooLong { bytes });
    assert!(long.to_string().contains("more than 8192"), "{long}");
    for name in ["x".repeat(8192), "a b\n".to_owned()] {
        assert_eq!(set.add_tenant(name.clone()).unwrap().name(), name);
    }
}

/// Without times no request expires, so a set that is told to expire them says so.
#[test]
fn a_timeout_that_would_never_pass() {
    let timeout = Duration::from_secs(30); // the default, but asked for
    let set = TagSet::builder().timeout(timeout).ages(false);
    let refused = set.build(|_, _| ()).unwrap_err();
    assert_eq!(refused, BuildError::TimeoutNeedsAges { timeout });
    let said = refused.to_string();
    assert!(
        said.contains("30s") && said.contains("ages(false)"),
        "{said}"
    );
    let clock = Clock::manual();
    let set = TagSet::builder().ages(false).clock(clock.clone());
    let set = set.build(|_, _| ()).unwrap();
    let mut tag = set.add_tenant("sda").unwrap().try_alloc().unwrap();
    tag.set_timeout(Duration::ZERO);
    let token = tag.into_token();
    clock.advance(Duration::from_secs(99));
    assert!(set.try_expired().is_none(), "it has no effect here");
    drop(set.redeem(token).unwrap());
}

#[test]
fn every_error_says_what_it_got() {
    let set = TagSet::builder().depth(4).max_depth(8).hw_queues(2);
    let set = set.build(|_, _| ()).unwrap();
    let dev = set.add_tenant("sda").unwrap();
    let refused = dev.try_alloc_with(AllocOptions::new().hw_queue(7));
    let refused = refused.unwrap_err();
    assert_eq!(refused, AllocError::NoSuchHwQueue { hw_queue: 7 });
    assert!(refused.to_string().contains('7'), "{refused}");
    let refused = set.resize(9).unwrap_err();
    assert_eq!(
        refused,
        ResizeError::Depth {
            depth: 9,
            least: 1,
            most: 8
        }
    );
    for token in [0, u64::MAX] {
        let none = RedeemError::NoToken {
            token: token.into(),
        };
        assert_eq!(set.redeem(token).unwrap_err(), none);
    }
    let refused = set.hw_queues().try_drain(5).unwrap_err();
    assert_eq!(refused, DrainError::NoSuchHwQueue { hw_queue: 5 });
    let machine = Topology::synthetic("core:2").unwrap();
    let set = TagSet::builder().hw_queues(2).topology(&machine);
    let set = set.build(|_, _| ()).unwrap();
    let second = AllocOptions::new().hw_queue(1);
    let _held = set.add_tenant("sda").unwrap().try_alloc_with(second);
    set.cpus().offline(1);
    let in_use = set.hw_queues().try_drain(1).unwrap_err();
    assert_eq!(in_use, DrainError::InUse { hw_queue: 1 });
    let late = set.hw_queues().drain_timeout(1, Duration::ZERO);
    let late = late.unwrap_err();
    assert_eq!(late, DrainError::TimedOut { hw_queue: 1 });
    for refused in [in_use, late] {
        assert!(refused.to_string().contains("queue 1"), "{refused}");
    }
}

/// An error has no room for a larger number than 2^32 - 1.
#[test]
fn a_number_too_large_for_the_error() {
    let set = TagSet::builder().depth(4).build(|_, _| ()).unwrap();
    let dev = set.add_tenant("sda").unwrap();
    let far = dev.try_alloc_with(AllocOptions::new().hw_queue(usize::MAX));
    let said = far.unwrap_err().to_string();
    assert!(said.ends_with("4294967294 or above"), "{said}");
    let mut split = dev.split(usize::MAX);
    let said = split.try_join().unwrap_err().to_string();
    assert!(said.starts_with("4294967295 or more tags"), "{said}");
}

#[test]
fn a_weight_where_none_counts() {
    for policy in [SharePolicy::default(), SharePolicy::None] {
        let set = TagSet::builder().share(policy).build(|_, _| ()).unwrap();
        let dev = set.add_tenant("sda").unwrap();
        let refused = dev.set_weight(7).unwrap_err();
        assert_eq!(refused, WeightError::NotWeighted { weight: 7, policy });
        let said = refused.to_string();
        assert!(said.contains('7') && said.contains("Weighted"), "{said}");
    }
    let policy = SharePolicy::Weighted { min: 1 };
    let set = TagSet::builder().share(policy).build(|_, _| ()).unwrap();
    assert_eq!(set.add_tenant("sda").unwrap().set_weight(7), Ok(()));
}

/// The text of an error has every number that its `Debug` form has.
fn assert_says_all(error: &(impl std::error::Error + ?Sized)) {
    let numbers = |text: &str| -> Vec<String> {
        let parts = text.split(|c: char| !c.is_ascii_digit());
        parts.filter(|n| !n.is_empty()).map(str::to_owned).collect()
    };
    let said = numbers(&error.to_string());
    let got = numbers(&format!("{error:?}"));
    assert!(!got.is_empty(), "{error:?}");
    for number in got {
        assert!(said.contains(&number), "{error:?} says \"{error}\"");
    }
}

#[test]
fn the_text_of_an_error_has_all_its_values() {
    let (read, poll, hw_queues, hw_queue, depth) = (71, 72, 73, 74, 75);
    let (max_depth, max_hw_queues, reserved) = (76, 77, 78);
    for error in [
        BuildError::HwQueues { hw_queues },
        BuildError::Depth { depth },
        BuildError::MaxDepth { max_depth, depth },
        BuildError::MaxHwQueues {
            max_hw_queues,
            hw_queues,
        },
        BuildError::Reserved { reserved, depth },
        BuildError::Extra { extra: 79 },
        BuildError::Kinds {
            read,
            poll,
            hw_queues,
        },
        BuildError::TooLarge { tags: 80 },
    ] {
        assert_says_all(&error);
    }
    let (least, most) = (81, 82);
    assert_says_all(&ResizeError::Depth { depth, least, most });
    assert_says_all(&ResizeError::HwQueues { hw_queues, most });
    for error in [
        DrainError::Active { hw_queue },
        DrainError::InUse { hw_queue },
        DrainError::TimedOut { hw_queue },
        DrainError::NoSuchHwQueue { hw_queue },
    ] {
        assert_says_all(&error);
    }
    let hw_queue = 83;
    for error in [
        AllocError::NoSuchHwQueue { hw_queue },
        AllocError::Unmapped { hw_queue },
        AllocError::InactiveHwQueue { hw_queue },
        AllocError::TooMany {
            pieces: 87,
            depth: 88,
        },
    ] {
        assert_says_all(&error);
    }
    assert_says_all(&TenantError::NameTaken { name: "84".into() });
    assert_says_all(&TenantError::NameTooLong { bytes: 89 });
    let timeout = Duration::from_secs(90);
    assert_says_all(&BuildError::TimeoutNeedsAges { timeout });
    let policy = SharePolicy::Fair { min: 85 };
    assert_says_all(&WeightError::NotWeighted { weight: 86, policy });
}

/// Whoever prints a refusal of a token, far from the ring, sees which token it was.
#[test]
fn a_refused_token_is_in_the_text() {
    let build = || TagSet::builder().depth(2).build(|_, _| ()).unwrap();
    let (set, other) = (build(), build());
    let dev = set.add_tenant("sda").unwrap();
    let mut said = Vec::new();
    let mut refused = |token: u64, error: RedeemError| {
        let (text, digits) = (error.to_string(), format!("{token:016x}"));
        assert!(text.contains(&digits[2..]), "{digits}: \"{text}\"");
        said.push(format!("{error:?}").split(' ').next().unwrap().to_owned());
    };
    let token = dev.try_alloc().unwrap().into_token();
    refused(token, set.redeem_timed_out(token).unwrap_err());
    refused(token, other.redeem(token).unwrap_err());
    let tag = set.redeem(token).unwrap();
    refused(token, set.redeem(token).unwrap_err());
    drop(tag);
    refused(token, set.redeem(token).unwrap_err());
    let beyond = token | 0xff_ffff;
    refused(beyond, set.redeem(beyond).unwrap_err());
    let late = dev.try_alloc().unwrap().into_token();
    set.for_each_in_flight(|t| assert!(t.mark_timed_out()));
    refused(late, set.redeem(late).unwrap_err());
    for token in [0, u64::MAX] {
        refused(token, set.redeem(token).unwrap_err());
    }
    let kinds = "NotTimedOut Foreign NotInFlight Stale OutOfRange TimedOut NoToken NoToken";
    assert_eq!(said.join(" "), kinds);
    drop(set.redeem_timed_out(late).unwrap());
}

/// A tag or why there is none comes back in two registers: errors hold what their caller does not
/// know, and not the token or the duration that it has passed.
#[test]
fn a_result_is_as_small_as_a_tag() {
    let tag = size_of::<Tag<()>>();
    assert_eq!(tag, 2 * size_of::<usize>());
    assert_eq!(size_of::<Result<Tag<()>, RedeemError>>(), tag);
    assert_eq!(size_of::<Result<Tag<()>, AllocError>>(), tag);
}
