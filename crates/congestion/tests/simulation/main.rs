//! The controller on emulated paths, in virtual time with fixed seeds: rates under random loss,
//! shares beside other flows, and changes of the path. `--nocapture` prints the results.

#![allow(clippy::expect_used, clippy::panic)] // a test that cannot go on has failed

mod changes;
mod cubic;
mod fairness;
mod flow;
mod link;
mod network;
mod rates;
