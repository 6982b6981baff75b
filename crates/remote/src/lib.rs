//! Copies between hosts with ssh logins, without a server. The far side is started through the
//! system's own `ssh`, which also exchanges keys made for this one copy. The data then goes
//! directly between the hosts over the ordinary session protocol.
//!
//! - [`Login`] is `user@host:path`, [`Ssh`] the `ssh` command. [`FarSide::start`] logs in and
//!   starts `longhaul serve --over-stdio` there, or a copy of this very program that it brings
//!   along. Both sides exchange [`message`]s, one line of JSON each.
//! - [`DataRoute`] is the route of the data: a connection to the far side, one from it, or the ssh
//!   connection itself. [`RouteChoice`] decides, without I/O; [`LoginConnector`] carries the
//!   decision out, and opens the streams of a copy.
//! - [`serve_over_stdio`] is the far side. It serves the one client whose key it was given, and the
//!   paths it was given, as the user who logged in, and ends with its standard input.
//! - [`between`] has two far sides copy to each other.
//!
//! No secret of a copy is on any command line: private keys never leave the process that made them.

#![forbid(unsafe_code)]

pub mod between;
mod bootstrap;
mod channel;
mod clock;
mod connector;
mod dial;
mod error;
mod far;
mod greeting;
mod login;
pub mod message;
mod ports;
mod remembered_way;
mod reverse;
mod search;
mod ssh;
mod ssh_stderr;
mod start;
mod ways;

pub use clock::ClientClock;
pub use connector::{FoundRoute, LoginConnector, ServeRequest};
pub use dial::{AddressFamily, FailedAttempt, FailedAttempts};
pub use error::Error;
pub use far::serve_over_stdio;
pub use login::Login;
pub use remembered_way::RouteMemory;
pub use ssh::Ssh;
pub use ssh_stderr::StderrLines;
pub use start::{FarSide, Start};
pub use ways::{DataRoute, RouteChoice, RouteEvent};
