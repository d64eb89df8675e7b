//! Tells the crate whether restartable sequences may be compiled in, and memory kept.
//!
//! A sanitizer cannot see what assembly does to memory, nor that a block was free between two uses
//! if the allocator was not told; and `cfg(sanitize)` is not stable, so the question is asked here.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(inflight_rseq)");
    println!("cargo::rustc-check-cfg=cfg(inflight_magazines)");
    println!("cargo::rerun-if-changed=build.rs");
    let var = |name: &str| std::env::var(name).unwrap_or_default();
    let is = |name: &str, value: &str| var(&format!("CARGO_CFG_{name}")) == value;
    let set = |name: &str| std::env::var_os(format!("CARGO_CFG_{name}")).is_some();
    // glibc registers the area of each thread; musl does not.
    let library = is("TARGET_OS", "linux") && is("TARGET_ENV", "gnu");
    let processor = is("TARGET_ARCH", "x86_64") || is("TARGET_ARCH", "aarch64");
    let plain = is("TARGET_POINTER_WIDTH", "64") && is("TARGET_ENDIAN", "little");
    let watched = ["SANITIZE", "MIRI", "LOOM", "SHUTTLE"].into_iter().any(set);
    if library && processor && plain && !watched {
        println!("cargo::rustc-cfg=inflight_rseq");
    }
    if !watched {
        println!("cargo::rustc-cfg=inflight_magazines");
    }
}
