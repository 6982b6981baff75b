#![allow(clippy::unwrap_used, clippy::panic)]

mod exploration;
mod messages;
mod world;
