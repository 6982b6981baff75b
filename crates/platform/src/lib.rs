//! Calls of the operating system beyond POSIX that Longhaul makes.
//!
//! There is one module for each platform, and both have the same functions. `linux` makes the calls
//! of Linux. `bsd` has replacements for macOS: it works with what POSIX and the BSDs have, and
//! reports what is missing by the errors with which an old Linux reports it. So callers have one
//! code path, and fall back as they do on an old kernel.
//!
//! `--cfg longhaul_portable` selects `bsd` on Linux, too (`make test-portable`). Every copy can
//! then be tested over the replacements. The page `docs/portability.md` says what differs for
//! users.

pub mod sockets;
mod types;

#[cfg(any(not(target_os = "linux"), longhaul_portable))]
mod bsd;
#[cfg(all(target_os = "linux", not(longhaul_portable)))]
mod linux;

#[cfg(any(not(target_os = "linux"), longhaul_portable))]
pub use bsd::{fs, net, process, random, tcp};
#[cfg(all(target_os = "linux", not(longhaul_portable)))]
pub use linux::{fs, net, process, random, tcp};

/// True if the calls of Linux are used.
pub const IS_LINUX: bool = cfg!(all(target_os = "linux", not(longhaul_portable)));
