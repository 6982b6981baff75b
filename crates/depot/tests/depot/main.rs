//! A depot between real sockets on loopback. Nothing here sleeps or knows a port: what is waited for is an event, and
//! timeouts run in tokio's paused time.

mod bed;
mod ends;
mod faults;
mod hostile;
mod life;
mod refusals;
mod session;
