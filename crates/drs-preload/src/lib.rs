//! Right-sizes the TCP connections of a program that knows nothing of it: loaded before the C library (`LD_PRELOAD`, which
//! `drs run` sets), it notes which connections the program opens, looks at them from a thread of its own through [`drs::Flow`], and
//! writes what it found and did to a log.
//!
//! Whatever happens here must not be seen by the program: results and `errno` are the C library's, panics end where they began,
//! no lock is waited for without a bound, the thread takes no signals, and what cannot be had is gone without.
//! `docs/libdrs.md` says where this ends.

#![cfg_attr(test, allow(dead_code))] // without the hooks nothing calls much of the rest
#![allow(unsafe_code)] // it stands in for functions of the C library; each use says why it holds

mod account;
mod ahead;
#[cfg(not(test))] // the tests' own process keeps the C library's functions
mod hooks;
mod log;
mod process;
mod real;
mod settings;
mod table;
mod watcher;

/// Called by the loader when everything this library stands on has been set up.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static SET_UP: extern "C" fn() = {
    extern "C" fn set_up() {
        let _ = std::panic::catch_unwind(process::set_up);
    }
    set_up
};

/// Called at `exit`, after the program's own functions for that.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".fini_array")]
static ENDING: extern "C" fn() = {
    extern "C" fn ending() {
        process::ending();
    }
    ending
};
