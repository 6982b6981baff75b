//! Problems of registrations.

use std::fmt;

use crate::check::MAX_ITEMS;

/// Reason why no depot may have a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameConflict {
    /// It reads as an address, or addresses a host of the map.
    Address,
    /// It reads as a key.
    Key,
    /// It is the name of a host on the map.
    Host,
    /// It is the name of a site on the map.
    Site,
}

impl fmt::Display for NameConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Address => "an address",
            Self::Key => "a key",
            Self::Host => "the name of a host of the map",
            Self::Site => "the name of a site of the map",
        })
    }
}

/// Reason why a registration is rejected or changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RegistrationProblem {
    /// The name is invalid: write 1 to 128 printable characters, without blanks at the ends and
    /// without `~`.
    #[error(
        "the name of a depot has 1 to 128 printable characters, with no space at either end and \
        no \"~\""
    )]
    Name,
    /// The version is invalid: write at most 64 printable characters.
    #[error("the version of a depot's software has at most 64 printable characters")]
    Version,
    /// There is no address, or more than 64: state 1 to 64, each with a transport.
    #[error("a depot has 1 to 64 addresses, each with a transport")]
    Addresses,
    /// A limit is 0: a depot that relays nothing does not register.
    #[error("a depot's limits must be more than 0")]
    Limits,
    /// The times are invalid: state a time of sending, and a validity above zero.
    #[error("a registration needs the time when it was sent, and a lifetime of more than 0 s")]
    Times,
    /// The registration is in the future: set the depot's clock.
    #[error("the registration is from {ahead:.0} s in the future: set the depot's clock")]
    Clock {
        /// Time by which it is ahead, in seconds.
        ahead: f64,
    },
    /// Its site is not on the map: the depot appears without a site.
    #[error("there is no site {site:?} on the map: add it, or correct the depot's settings")]
    NoSite {
        /// The name, shortened and printable.
        site: String,
    },
    /// The name is reserved: register another, or have the operator grant this key the name of its
    /// host.
    #[error(
        "a depot cannot be called {name:?}, which is {conflict}; register it under another name, \
         or have the operator grant this key the name of its host \
         (longhaul control grant KEY depot --name HOST)"
    )]
    NameReserved {
        /// The name, shortened and printable.
        name: String,
        /// Reason.
        conflict: NameConflict,
    },
    /// The name belongs to another key: the depot appears with a part of its own key. Give it
    /// another name, or have the operator release this one (docs/control.md).
    #[error("the name {name:?} belongs to another key: the depot is shown as {shown_as:?}")]
    NameTaken {
        /// The name.
        name: String,
        /// Name on the map.
        shown_as: String,
    },
    /// The map is full. Remove depots that are no longer used.
    #[error("the map is full: it holds at most {MAX_ITEMS} depots")]
    Full,
}
