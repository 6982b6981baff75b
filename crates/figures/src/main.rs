//! Runs the demonstration and the published measurements, and writes their tables and plots.

fn main() {}
