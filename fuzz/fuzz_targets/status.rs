//! `cargo +nightly fuzz run status`: whatever bytes come where status records should.
#![no_main]

#[path = "../properties.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::status(data));
