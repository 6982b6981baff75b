//! Plans as data: TOML files that are part of the program.

use serde::Deserialize;

/// Parses a plan.
///
/// # Panics
/// The text is not valid. It is part of the program, and a test reads every plan.
#[allow(clippy::expect_used)] // the text is known when the program is built
pub fn plan<T: Deserialize<'static>>(text: &'static str) -> T {
    toml::from_str(text).expect("a plan of the program is valid")
}
