//! Any text is a CPU set or an error, and a set survives both of its text forms.
#![no_main]

use inflight_topology::CpuSet;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for set in [text.parse::<CpuSet>(), CpuSet::from_mask_str(text)]
        .into_iter()
        .flatten()
    {
        assert_eq!(set.to_string().parse().as_ref(), Ok(&set));
        assert_eq!(
            CpuSet::from_mask_str(&set.to_mask_string()).as_ref(),
            Ok(&set)
        );
        assert_eq!(set.iter().count(), set.len());
    }
});
