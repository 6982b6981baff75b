//! Unmodified programs that the on-ramp brings through two depots and an off-ramp, and their
//! behaviour when a part dies.
//!
//! pc - laptop - near - far - server: the on-ramp runs on the laptop, which is also the gateway of
//! the pc; depots on near and far, the off-ramp on far, ordinary servers on server.

mod deaths;
mod gateway;
mod programs;
mod world;
