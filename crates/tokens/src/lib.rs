//! Bearer tokens of WLCG and SciTokens issuers.
//!
//! At a server, an [`Authority`] verifies the tokens of clients: `judge` decides what a token
//! permits, `keys` verifies its signature, and `cache` decides when the keys of an issuer are
//! fetched. These are pure; `issuer` does the I/O.
//!
//! At a client, [`login`] gets tokens by device codes (RFC 8628) and keeps them, `discovery` finds
//! those of other programs, and `binding` decides which server receives one. [`HostTokens`] puts
//! these together.

mod authority;
mod binding;
mod cache;
mod claims;
mod discovery;
mod error;
mod host_tokens;
mod https;
mod issuer;
mod issuer_url;
mod judge;
mod keys;
pub mod login;
mod metadata;
mod policy;
mod scope;
#[cfg(test)]
mod test_keys;

pub use authority::Authority;
pub use error::{FetchError, IssuersError, LoginError};
pub use host_tokens::HostTokens;
pub use issuer_url::{IssuerUrl, IssuerUrlError};
pub use policy::{IssuerPolicies, IssuerPolicy};
