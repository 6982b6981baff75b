//! Striped servers: a client sends the streams of a copy to any member, and that member passes them
//! to the one that has the copy (LH-COPY-76 to LH-COPY-78).

mod client;
mod members;
mod preface;

pub(super) use client::{CopyOwnership, name_owner};
pub use members::StripeMembers;
