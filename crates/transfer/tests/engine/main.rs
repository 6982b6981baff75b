//! The engine over in-memory streams: whole trees both ways, with faults injected. No socket, no fixed port, no sleep.

mod attacks;
mod faults;
mod harness;
mod trees;
