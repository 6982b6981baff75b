//! The longhaul command: cp, serve, depot, keys.

fn main() {}
