//! Flow marking with SciTags (<https://www.scitags.org>): datagrams, called fireflies, tell
//! networks which experiment and activity a flow belongs to.
//!
//! A firefly is sent when a flow starts, each minute while it lasts, and when it ends. It goes to
//! the other end of the flow, so that networks on the path see it, and to collectors. Nothing waits
//! for it.
//!
//! | module | purpose |
//! |---|---|
//! | `tag` | the numbers of experiment and activity |
//! | `packet` | the datagram; pure |
//! | `marker` | sends the datagrams of all flows |

#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::indexing_slicing))]

mod marker;
mod packet;
mod tag;

pub use marker::{FlowMarker, MarkedFlow};
pub use packet::{Flow, FlowUsage, Protocol};
pub use tag::FlowTag;
