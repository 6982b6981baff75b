//! `cargo +nightly fuzz run open`: whatever bytes come where an OPEN should.
#![no_main]

#[path = "../properties.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::open(data));
