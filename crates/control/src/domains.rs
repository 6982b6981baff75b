//! Reservations across domains: the I/O around [`longhaul_domains`]. The tasks that need the whole
//! controller are in [`crate::controller::domains`].
//!
//! | module | purpose |
//! |---|---|
//! | [`settings`] | the domain's name, edges and peers, as the operator configures them |
//! | [`handle`] | requests to the agent, and what it knows |
//! | [`peers`] | requests to the controllers of other domains |
//! | [`publication`] | the domain's own abstract topology, made of its map and book |

pub mod handle;
pub mod peers;
pub mod publication;
pub mod settings;

pub use handle::DomainsHandle;
pub use settings::{DomainSettings, DomainSettingsFault};
