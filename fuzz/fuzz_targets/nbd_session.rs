//! Whatever a client sends while it negotiates, and then as requests: nothing panics, nothing grows
//! beyond what was sent, and requests that pass the check lie within the export.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nbd_export::negotiate::{Described, Negotiation, Next};
use nbd_export::proto::{Command, Request};

fuzz_target!(|input: (Vec<u8>, u8, u64, u32, bool)| {
    let (bytes, cut, size, block, read_only) = input;
    let exports = ["", "disk"].map(|name| Described {
        name: name.to_owned(),
        size: size.max(1),
        block: 1 << (block % 13),
        preferred: 4096,
        max_payload: 32 << 20,
        read_only,
    });
    let mut negotiation = Negotiation::new();
    let (mut buffer, mut output) = (Vec::new(), Vec::new());
    let mut parts = bytes.chunks(usize::from(cut).max(1));
    let agreed = loop {
        let Some(part) = parts.next() else { return };
        buffer.extend_from_slice(part);
        let (taken, next) = negotiation.receive(&buffer, &exports, &mut output);
        assert!(taken <= buffer.len());
        buffer.drain(..taken);
        // An option and its answers, for as many options as there can be.
        assert!(buffer.len() <= (8 << 10) + 16 + 256 && output.len() <= 64 << 10);
        match next {
            Next::More => {}
            Next::Close(_) => return,
            Next::Transmit(agreed) => break agreed,
        }
    };
    let export = &exports[agreed.export];
    let limits = agreed.limits(export);
    buffer.extend(parts.flatten());
    for bytes in buffer.chunks_exact(Request::LEN) {
        let Some(request) = Request::decode(bytes) else {
            return;
        };
        if request.check(&limits).is_ok() {
            let command = request.command.expect("what passes says what it wants");
            let writes = [Command::Write, Command::Trim, Command::WriteZeroes];
            assert!(!read_only || !writes.contains(&command));
            assert!(request.offset + u64::from(request.length) <= export.size);
        }
    }
});
