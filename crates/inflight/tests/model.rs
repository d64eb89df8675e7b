//! A model that was built without loom does not pass in silence.
#![cfg(not(loom))]

#[test]
fn a_model_without_loom_says_what_to_type() {
    let result = std::panic::catch_unwind(|| inflight::model::check(|| ()));
    let panic = result.expect_err("nothing was explored");
    let said = panic.downcast_ref::<&str>().copied();
    let said = said.map(str::to_owned);
    let said = said.or_else(|| panic.downcast_ref::<String>().cloned());
    let said = said.expect("a message");
    for part in ["RUSTFLAGS=\"--cfg loom\" cargo test --release", "thousands"] {
        assert!(said.contains(part), "{said}");
    }
}
