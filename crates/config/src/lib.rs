//! This machine's identity, the servers it knows, and its table of routes, for every command and
//! library.
//!
//! - [`home`]: the directories, the identity and the file of known servers.
//! - [`routes`]: `routes.toml`, the rules that assign routes to the connections of programs. Pure
//!   except for [`routes::RouteTable::load`].

#![forbid(unsafe_code)]

pub mod home;
pub mod routes;
