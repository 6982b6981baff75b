//! The receiving half of a copy: reads what streams bring, keeps account of it, and has the store
//! put it in place.

mod ledger;
mod receiver;
mod stream;

pub use ledger::Asked;
pub(crate) use receiver::Receiver;
pub(crate) use stream::{AfterDone, StreamEnd, receive_stream, refused};
