//! Emulated wide-area networks on one machine, in network namespaces.

fn main() {}
