//! A Linux router in a lab: real `tc` and `ip`.

#![allow(clippy::unwrap_used, clippy::panic)] // a test that fails may panic, in its helpers too

mod bed;
mod crashes;
mod flows;
mod foreign;
mod standing;
