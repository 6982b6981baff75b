//! Copies with hosts that have nothing but an SFTP server: no longhaul, and often no shell.
//!
//! - [`SftpPath`] is a path at a host: `sftp://user@host/path`, or `user@host:path`.
//! - [`SftpCopy`] logs in with the system's own `ssh`, several times (`ssh -s host sftp`). Each
//!   connection has its own window in ssh and in TCP, so several carry more over a long path than
//!   one. Requests are pipelined over all of them: many small files at once, and the ranges of
//!   large ones. If a connection ends, the others take over its requests, and it is replaced.
//! - [`SftpFiles`] lists, reads and removes what a host holds.
//! - SFTP has no checksums. What a copy sent is therefore not verified at the other end, and its
//!   report says so. At this end, everything is as in any other copy
//!   ([`longhaul_transfer::local_end`]).
//!
//! What decides is pure: [`pool::balance`](pool) says which connection takes a request,
//! [`pool::recovery`](pool) when one is opened or the copy given up, [`ranges`] which part of a
//! file is sent next, and [`existing`] what happens to what exists.
//!
//! # The library
//!
//! `openssh-sftp-client-lowlevel` encodes and decodes the protocol. It was chosen because it
//! separates sending a request from waiting for its answer, so any number can be under way; takes
//! the bytes of a write without copying them; treats handles as bytes; and has the extensions of
//! OpenSSH (fsync, posix-rename, limits). It is maintained with OpenSSH's multiplexing client.
//! `russh-sftp` treats handles as text, so OpenSSH's fail from the 129th on, and copies the data of
//! a write several times. Both take only names that are UTF-8.

#![forbid(unsafe_code)]

/// Sends a request that may be repeated, on one connection after the other, until one answers.
/// `cost` is the number of bytes that it carries.
macro_rules! again {
    ($pool:expr, $cost:expr, |$lease:ident| $request:expr) => {
        loop {
            let $lease = $pool.lease($cost).await;
            match $request.await {
                Err($crate::error::RequestError::Lost) => {}
                answer => break answer,
            }
        }
    };
}

mod content;
mod copy;
mod entries;
mod error;
mod existing;
mod files;
mod listing;
mod location;
mod packets;
mod pool;
mod pull;
mod push;
mod ranges;
mod remote_file;
mod request;
mod session;
mod unfinished;

pub use copy::SftpCopy;
pub use error::Error;
pub use files::SftpFiles;
pub use location::SftpPath;
pub use request::{CopySettings, PullRequest, PushRequest};
