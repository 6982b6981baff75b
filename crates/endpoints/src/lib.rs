//! Copies with object stores (S3, Google Cloud Storage, Azure Blob Storage), WebDAV servers and
//! web servers.
//!
//! - [`EndpointPath`] is a path in one of them: `s3://bucket/key`, `https://host/path` and others.
//! - [`EndpointCopy`] copies between one of them and this machine, or between two of them through
//!   this machine. Large files travel in parts, several at a time, and many small files at once.
//! - [`StoreSources`] reads a store for a copy to another machine, through this one.
//! - [`EndpointFiles`] lists and removes what a store holds.
//! - What arrives at this machine is written as in any other copy
//!   ([`longhaul_transfer::local_end`]). An upload in parts is resumed with the help of a small
//!   record in the user's state directory.
//! - The stores do not compute the hashes that Longhaul verifies with, so the report of a copy says
//!   that it is not verified. ETags detect objects that change while they are read.
//!
//! The deciding parts are pure: `parts` says in which parts a file travels, `limit` how many
//! requests are in flight, `existing` what happens to what exists, and `reason` what an error
//! means.
//!
//! # The libraries
//!
//! `object_store` is the client of all stores: it is the one that Apache Arrow and DataFusion use,
//! and has ranged requests, uploads in parts that can be resumed, conditional requests and the
//! credentials of the clouds. It stores a file at a web server only from memory, so `reqwest`, on
//! which it is built, sends those as a stream. `configparser` reads the profiles of the AWS tools,
//! and `netrc-rs` logins of web servers; neither has dependencies.

#![forbid(unsafe_code)]

mod connect;
mod content;
mod copy;
mod destination;
mod download;
mod error;
mod existing;
mod files;
mod gate;
mod limit;
mod location;
mod login;
mod object;
mod outage;
mod overload;
mod parts;
mod profile;
mod push;
mod reader;
mod reason;
mod record;
mod relay;
mod request;
mod store;
#[cfg(test)]
mod tests;
mod tree;
mod upload;
mod walk;
mod web;

pub use copy::EndpointCopy;
pub use error::Error;
pub use files::EndpointFiles;
pub use location::{EndpointPath, Scheme};
pub use relay::StoreSources;
pub use request::{CopySettings, CopySources, CopyTarget};
