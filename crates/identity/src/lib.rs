//! Owners of keys: names and groups from a file, and X.509 certificates that vouch for keys.
//!
//! Every session belongs to an Ed25519 key. A [`Principal`] is such a key with the names and groups
//! that this machine believes. Policies, grants and roles list principals with one syntax, a
//! [`PrincipalPattern`]: `lhk1:...`, `name:ana`, `group:lab` or `*`.
//!
//! Names come from a file:
//!
//! ```toml
//! [[principal]]
//! name = "ana"                                # letters, digits, '.', '_' and '-'
//! keys = ["lhk1:..."]                         # keys that are hers
//! certificates = ["/DC=org/DC=Lab/CN=Ana"]    # names of certificates that are hers
//! groups = ["lab"]
//!
//! [[authority]]
//! anchors = "/etc/grid-security/certificates" # a directory of certificates, or a file
//! crls = "/var/lib/crls"                      # default: those in the directory of anchors
//! subjects = ["/DC=org/DC=Lab/*", "*@lab.example"]
//! groups = ["grid"]                           # groups of everybody with such a certificate
//! ```
//!
//! A certificate vouches for a key by a [`Voucher`](longhaul_proto::Voucher), which travels in the
//! OPEN. `rustls-webpki` verifies its chain, and `x509-parser` reads its names.
//!
//! [`Identities`] is the file in force with the keys that were vouched for. Everything beneath it
//! is pure, except for the loader of certificates.
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing)] // the input comes from the network
#![cfg_attr(test, allow(clippy::indexing_slicing))]

mod anchors;
mod authority;
mod certificate;
mod error;
mod file;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod identities;
mod name_pattern;
mod principal;
mod principal_pattern;
mod proof;
mod vouch;
mod vouched_keys;

pub use anchors::TrustAnchors;
pub use certificate::certificate_names;
pub use error::IdentityError;
pub use identities::{Identities, MAX_VOUCHED_KEYS};
pub use name_pattern::NamePattern;
pub use principal::Principal;
pub use principal_pattern::{InvalidPattern, PrincipalPattern, PrincipalSet};
pub use proof::verify_server;
pub use vouch::{VouchError, VouchRequest, vouch};
pub use vouched_keys::MAX_KEYS_PER_SUBJECT;
