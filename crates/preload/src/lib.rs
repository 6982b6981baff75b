//! The library that is loaded before the C library of unmodified programs (`LD_PRELOAD`), and the
//! code that starts such programs.
//!
//! One preload object replaces some functions of the C library ([`hooks`]). Depending on the
//! environment, it right-sizes the program's TCP connections: it notes the connections that the
//! program opens, samples them in a thread of its own through [`drs::Flow`], and writes its
//! findings and actions to a log. The object itself, `crates/preload-object`, exports the hooks
//! under their names and contains nothing else. [`launch`] is shared by `drs run` and
//! `longhaul run`.
//!
//! The program must not notice the library. Results and `errno` are the C library's, panics are
//! caught, no wait is unbounded, the thread takes no signals, and the library does without anything
//! it cannot get. `docs/libdrs.md` lists the limits of this.

#![allow(unsafe_code)] // it stands in for functions of the C library; each use says why it holds

pub mod hooks;
pub mod launch;
pub mod process;
pub mod settings;

mod claim;
mod context;
mod descriptor;
mod filter;
mod helper;
mod log;
mod real;
mod right_sizing;
mod routes;
mod table;
