use super::*;
use proptest::prelude::*;

fn exports() -> Vec<Described> {
    ["disk", "other"]
        .map(|name| Described {
            name: name.to_owned(),
            size: 1 << 20,
            block: 1,
            preferred: 4096,
            max_payload: 32 << 20,
            read_only: name == "other",
            fast_zeros: true,
        })
        .into()
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = proto::OPTION_MAGIC.to_be_bytes().to_vec();
    bytes.extend(number.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

fn go(name: &str) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend([0, 1, 0, 3]);
    option(option::GO, &data)
}

fn flags(flags: u32) -> Vec<u8> {
    flags.to_be_bytes().to_vec()
}

/// The kinds of the answers, and how it ended.
fn run(input: &[u8]) -> (Vec<u32>, Next) {
    run_with(&exports(), input)
}

fn run_with(exports: &[Described], input: &[u8]) -> (Vec<u32>, Next) {
    let (mut negotiation, mut output) = (Negotiation::new(), Vec::new());
    let mut rest = input;
    let next = loop {
        let (taken, next) = negotiation.receive(rest, exports, &mut output);
        rest = &rest[taken..];
        if taken == 0 || next != Next::More {
            break next;
        }
    };
    let mut kinds = Vec::new();
    let mut fields = Fields(&output);
    while let Some(magic) = fields.u64() {
        assert_eq!(magic, proto::OPTION_REPLY_MAGIC);
        fields.u32().unwrap();
        kinds.push(fields.u32().unwrap());
        let len = fields.u32().unwrap();
        fields.bytes(len as usize).unwrap();
    }
    (kinds, next)
}

#[test]
fn go_agrees_on_an_export() {
    let (kinds, next) = run(&[flags(3), go("other")].concat());
    assert_eq!(kinds, [reply::INFO, reply::INFO, reply::ACK]);
    let agreed = Agreed {
        export: 1,
        structured: false,
        block_status: false,
    };
    assert_eq!(next, Next::Transmit(agreed));
}

#[test]
fn what_is_unknown_is_refused_and_the_client_may_go_on() {
    let input = [
        flags(3),
        option(77, b"x"),
        go("none"),
        option(option::LIST, b"x"),
        option(option::GO, &[0, 0, 0, 9]),
        option(option::LIST, &[]),
    ];
    let (kinds, next) = run(&input.concat());
    let expected = [
        reply::ERR_UNSUP,
        reply::ERR_UNKNOWN,
        reply::ERR_INVALID,
        reply::ERR_INVALID,
        reply::SERVER,
        reply::SERVER,
        reply::ACK,
    ];
    assert_eq!((&kinds[..], next), (&expected[..], Next::More));
}

#[test]
fn contexts_need_structured_replies() {
    let mut data = 4_u32.to_be_bytes().to_vec();
    data.extend(b"disk");
    data.extend(1_u32.to_be_bytes());
    data.extend(15_u32.to_be_bytes());
    data.extend(b"base:allocation");
    let ask = option(option::SET_META_CONTEXT, &data);
    let (kinds, _) = run(&[flags(3), ask.clone()].concat());
    assert_eq!(kinds, [reply::ERR_INVALID]);
    let structured = option(option::STRUCTURED_REPLY, &[]);
    let (kinds, next) = run(&[flags(3), structured, ask, go("disk")].concat());
    assert_eq!(kinds[..3], [reply::ACK, reply::META_CONTEXT, reply::ACK]);
    assert!(matches!(next, Next::Transmit(agreed) if agreed.block_status));
}

#[test]
fn an_option_that_is_too_long_is_passed_over() {
    let long = vec![1; 100_000];
    let input = [
        flags(3),
        option(option::GO, &long),
        option(option::LIST, &[]),
    ];
    let (kinds, _) = run(&input.concat());
    assert_eq!(kinds[0], reply::ERR_TOO_BIG);
    assert_eq!(kinds.last(), Some(&reply::ACK));
}

/// It would be read for as long as its client likes to send.
#[test]
fn an_option_that_is_much_too_long_ends_the_connection() {
    for len in [(1 << 20) + 1, u32::MAX] {
        let mut head = option(option::GO, &[]);
        head[12..].copy_from_slice(&len.to_be_bytes());
        let (kinds, next) = run(&[flags(3), head].concat());
        assert_eq!(kinds, [reply::ERR_TOO_BIG]);
        assert!(matches!(next, Next::Close(_)), "{next:?}");
    }
    let longest = option(option::GO, &vec![1; 1 << 20]);
    let (kinds, next) = run(&[flags(3), longest].concat());
    assert_eq!((&kinds[..], next), (&[reply::ERR_TOO_BIG][..], Next::More));
}

/// `qemu-nbd -L` asks for each export and its contexts in one session.
#[test]
fn a_hundred_exports_can_be_asked_about_one_by_one() {
    let names: Vec<String> = (0..100).map(|n| format!("disk{n}")).collect();
    let [disk, _] = <[_; 2]>::try_from(exports()).unwrap();
    let named = |name: &String| Described {
        name: name.clone(),
        ..disk.clone()
    };
    let exports: Vec<Described> = names.iter().map(named).collect();
    let mut input = [flags(3), option(option::STRUCTURED_REPLY, &[])].concat();
    input.extend(option(option::LIST, &[]));
    for name in &names {
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend(name.as_bytes());
        input.extend(option(option::INFO, &[&data[..], &[0, 0]].concat()));
        input.extend(option(
            option::LIST_META_CONTEXT,
            &[&data[..], &[0; 4]].concat(),
        ));
    }
    input.extend(option(option::ABORT, &[]));
    let (kinds, next) = run_with(&exports, &input);
    assert_eq!(next, Next::Goodbye);
    let contexts = kinds.iter().filter(|&&kind| kind == reply::META_CONTEXT);
    assert_eq!(contexts.count(), 100);
}

/// One who asks much and reads nothing has the server keep few answers.
#[test]
fn answers_wait_until_the_ones_before_them_are_sent() {
    let [disk, _] = <[_; 2]>::try_from(exports()).unwrap();
    let named = |n| Described {
        name: format!("{n:0>4000}"),
        ..disk.clone()
    };
    let exports: Vec<Described> = (0..8).map(named).collect();
    let lists = (0..64).flat_map(|_| option(option::LIST, &[]));
    let input: Vec<u8> = flags(3).into_iter().chain(lists).collect();
    let (mut negotiation, mut output) = (Negotiation::new(), Vec::new());
    let (taken, next) = negotiation.receive(&input, &exports, &mut output);
    assert_eq!(next, Next::More);
    assert!(taken < input.len() && output.len() < 128 << 10);
}

/// That option has no answer, so one that is too long for a name cannot be refused by one.
#[test]
fn an_export_name_that_is_too_long_ends_the_connection() {
    for len in [4097, 100_000] {
        let long = option(option::EXPORT_NAME, &vec![b'x'; len]);
        let input = [flags(3), long, option(option::LIST, &[])];
        let (kinds, next) = run(&input.concat());
        assert!(matches!(next, Next::Close(_)), "{len}");
        assert_eq!(kinds, []);
    }
}

/// Blocks of 512 bytes are not what clients assume: they have to ask.
#[test]
fn an_export_with_large_blocks_is_for_clients_that_ask_for_block_sizes() {
    let mut exports = exports();
    exports[0].block = 512;
    let named = |wanted: &[u8]| {
        let mut data = 4_u32.to_be_bytes().to_vec();
        data.extend(b"disk");
        data.extend(wanted);
        data
    };
    for number in [option::INFO, option::GO] {
        let without = option(number, &named(&[0, 0]));
        let (kinds, next) = run_with(&exports, &[flags(3), without].concat());
        let required = reply::ERR_BLOCK_SIZE_REQD;
        assert_eq!(kinds, [reply::INFO, reply::INFO, required]);
        assert_eq!(next, Next::More);
        let with = option(number, &named(&[0, 1, 0, 3]));
        let (kinds, _) = run_with(&exports, &[flags(3), with].concat());
        assert_eq!(kinds, [reply::INFO, reply::INFO, reply::ACK]);
    }
    let without = [flags(3), option(option::EXPORT_NAME, b"disk")].concat();
    let (kinds, next) = run_with(&exports, &without);
    assert_eq!(kinds, []);
    assert!(matches!(next, Next::Close(_)));
}

#[test]
fn a_stranger_is_sent_away() {
    assert!(matches!(run(b"GET / HTTP/1.1\r\n\r\n").1, Next::Close(_)));
    let nonsense = [flags(3), vec![9; 16]].concat();
    assert!(matches!(run(&nonsense).1, Next::Close(_)));
    for endless in [option(option::LIST, &[]), option(option::GO, &[1; 9000])] {
        let many = (0..100).flat_map(|_| endless.clone());
        let many: Vec<u8> = flags(3).into_iter().chain(many).collect();
        assert!(matches!(run(&many).1, Next::Close(_)));
    }
}

proptest! {
    /// However the bytes are cut, the answers are the same.
    #[test]
    fn it_does_not_matter_how_bytes_arrive(
        junk in proptest::collection::vec(any::<u8>(), 0..200), cut in 1..40_usize,
    ) {
        let input = [flags(3), option(8, &[]), option(5, &junk), option(6, &junk),
            option(10, &junk), go("disk")].concat();
        let mut whole = Vec::new();
        let (_, ended) = Negotiation::new().receive(&input, &exports(), &mut whole);
        let mut negotiation = Negotiation::new();
        let (mut parts, mut buffer) = (Vec::new(), Vec::new());
        let mut last = Next::More;
        for part in input.chunks(cut) {
            buffer.extend(part);
            let (taken, next) = negotiation.receive(&buffer, &exports(), &mut parts);
            buffer.drain(..taken);
            last = next;
            if last != Next::More { break; }
        }
        prop_assert_eq!((parts, last), (whole, ended));
    }
}
