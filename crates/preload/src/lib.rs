//! What is loaded before the C library of a program that knows nothing of it (`LD_PRELOAD`), and
//! what starts programs so.
//!
//! One preload object stands in for some functions of the C library ([`hooks`]) and, as the
//! environment asks, right-sizes the program's TCP connections: it notes which ones the program
//! opens, looks at them from a thread of its own through [`drs::Flow`], and writes what it found
//! and did to a log. The object itself, `crates/preload-object`, gives the hooks their names and is
//! all that has them. [`launch`] is what `drs run` and `longhaul run` share.
//!
//! Whatever happens here must not be seen by the program: results and `errno` are the C library's,
//! panics end where they began, nothing is waited for without a bound, the thread takes no signals,
//! and what cannot be had is gone without. `docs/libdrs.md` says where this ends.

#![allow(unsafe_code)] // it stands in for functions of the C library; each use says why it holds

pub mod hooks;
pub mod launch;
pub mod process;
pub mod settings;

mod claim;
mod context;
mod filter;
mod helper;
mod log;
mod real;
mod right_sizing;
mod routes;
mod table;
