//! Hexadecimal numbers.

/// Formats bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
            // Writing to a string can't fail.
            let _ = write!(out, "{byte:02x}");
            out
        })
}
