//! Who one is, whom one knows, and which routes lead where: one place for every command and
//! library.
//!
//! - [`home`]: the directories, the identity and the file of known servers.
//! - [`routes`]: `routes.toml`, the rules by which connections of programs find their route. Pure
//!   but for [`routes::RouteTable::load`].

#![forbid(unsafe_code)]

pub mod home;
pub mod routes;
