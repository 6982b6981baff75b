//! Quantities with their units, and a model of what TCP carries over a path.
//!
//! # How quantities are written
//!
//! A quantity is a decimal number and a unit, with or without a space between them: `155 Mbit/s`,
//! `64KiB`, `1.5e-3 s`. The number has no sign and may have an exponent. Each type prints in one
//! form and parses in one way. What it prints parses back to the same value, to the digits printed.
//!
//! | quantity | printed in | also parsed | a bare number is |
//! |---|---|---|---|
//! | [`Rate`] | bit/s, kbit/s, Mbit/s, Gbit/s, Tbit/s | `155M`, `bit`, `b/s`, `bps` | bit/s |
//! | [`ByteCount`] | B, KiB, MiB, GiB, TiB, PiB, EiB | `64K`, `64k`, `64KB`, `bytes`, ... | bytes |
//! | [`Time`] | ns, us, ms, s, min, h, days | `d` | seconds |
//! | [`Probability`] | no unit: `0.01`, `2.5e-8` | `0.001%`, `none` | itself |
//!
//! In a rate, the prefix and `bit/s` may be in either case.
//!
//! *Rates are decimal*: 1 kbit/s is 1000 bit/s, as links are sold and as iperf3 counts. *Sizes are
//! binary* in every spelling: K, KB, kB and KiB are all 1024 bytes, as for socket buffers, in
//! iperf3 and in the papers. Sizes print with the exact names KiB, MiB and GiB, so that no reader
//! has to know this custom. A rate in bytes (`10 MB/s`, `10 MBps`) is refused: taken for bits, it
//! would be wrong by a factor of eight.
//!
//! [`std::str::FromStr`] accepts bare numbers, as iperf3 does. The `with_unit` function of each
//! type refuses them; it is meant for files, where a bare number would not say what it counts.
//!
//! Four significant digits are printed; `{:.3}` prints three. Digits before the point are never
//! rounded away, and trailing zeros are left out.
//!
//! # What TCP carries
//!
//! [`path::Hop`] is the path of one TCP connection. It computes the long-run rate and what limits
//! it ([`path::Hop::steady_rate`]), the length of slow start ([`path::Hop::slow_start_phase`]), and
//! the duration of a transfer ([`path::Hop::transfer_time`]).

#![deny(clippy::indexing_slicing)] // what is read here comes from files and command lines

mod byte_count;
mod error;
pub mod path;
mod printing;
mod probability;
mod rate;
mod reading;
mod time;

pub use byte_count::{ByteCount, ShortByteCount};
pub use error::QuantityError;
pub use probability::Probability;
pub use rate::Rate;
pub use time::Time;

#[cfg(test)]
mod tests;
