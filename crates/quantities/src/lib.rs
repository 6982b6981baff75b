//! Quantities with their units, and what TCP carries over a path.
//!
//! # How quantities are written
//!
//! A quantity is a decimal number and a unit, with or without a space between them: `155 Mbit/s`,
//! `64KiB`, `1.5e-3 s`. The number has no sign and may have an exponent. Every quantity has one way
//! to be printed and one to be read, and what is printed reads back as the same value, to the
//! digits printed.
//!
//! | quantity | printed in | read as well | a bare number is |
//! |---|---|---|---|
//! | [`Rate`] | bit/s, kbit/s, Mbit/s, Gbit/s, Tbit/s | `155M`, `155Mbit`, `155Mb/s`, `155Mbps`; the prefix and `bit/s` in either case | bit/s |
//! | [`ByteCount`] | B, KiB, MiB, GiB, TiB, PiB, EiB | `64K`, `64k`, `64KB`, `64kB` and so on, `bytes` | bytes |
//! | [`Time`] | ns, us, ms, s, min, h, days | `d` | seconds |
//! | [`Probability`] | no unit: `0.01`, `2.5e-8` | `0.001%`, `none` | itself |
//!
//! *Rates are decimal*: 1 kbit/s is 1000 bit/s, as links are sold and as iperf3 counts. *Sizes are
//! binary*, whatever the spelling: K, KB, kB and KiB are all 1024 bytes, the habit of socket
//! buffers, of iperf3 and of the papers; they print with the exact names KiB, MiB and GiB, so that
//! no reader has to know the habit. A rate in bytes (`10 MB/s`, `10 MBps`) is refused: it would be
//! eight times off if it were taken for bits.
//!
//! [`std::str::FromStr`] takes bare numbers, as iperf3 does. `with_unit` of each type refuses them:
//! for files, where nobody sees what they count.
//!
//! Four significant digits are printed; `{:.3}` prints three. Digits before the point are never
//! rounded away, and zeros at the end are left out.
//!
//! # What TCP carries
//!
//! [`path::Hop`] is one TCP connection's path: what it carries in the long run and what binds
//! ([`path::Hop::steady`]), how long it is in slow start ([`path::Hop::ramp`]), and how long a
//! transfer takes ([`path::Hop::time`]).

#![deny(clippy::indexing_slicing)] // what is read here comes from files and command lines

mod byte_count;
mod error;
pub mod path;
mod printing;
mod probability;
mod rate;
mod reading;
mod time;

pub use byte_count::ByteCount;
pub use error::QuantityError;
pub use probability::Probability;
pub use rate::Rate;
pub use time::Time;

#[cfg(test)]
mod tests;
