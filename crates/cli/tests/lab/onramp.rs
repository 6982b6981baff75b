//! Programs that know nothing of the on-ramp, brought by it through two depots and an off-ramp; and
//! what becomes of them when something dies.
//!
//! pc - laptop - near - far - server: the on-ramp runs on the laptop, which is also the gateway of
//! the pc; depots on near and far, the off-ramp on far, ordinary servers on server.

mod deaths;
mod gateway;
mod programs;
mod world;
