//! Emulated wide-area networks on one machine, in network namespaces.

pub mod link;
pub mod spec;
