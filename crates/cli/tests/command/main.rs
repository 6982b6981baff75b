//! The built command on loopback: serve, depot and cp as a person would run them. The system
//! chooses every port.

#![allow(clippy::unwrap_used, clippy::panic)] // A test that can't go on has failed.

mod accounts;
mod accounts_served;
mod activation;
mod agent;
mod agents;
mod aliases;
mod certificates;
#[path = "../common/mod.rs"]
mod common;
mod completion;
mod control;
mod copies;
mod deadlines;
mod deaths;
mod devices;
mod domains;
mod elsewhere;
mod files;
mod first_use;
mod fleet;
mod grants;
mod inplace;
mod kills;
mod leftovers;
mod limits;
mod logins;
mod logs;
mod looking;
mod loose;
mod metadata;
mod monitoring;
mod mounts;
mod node;
mod notices;
mod perf;
#[path = "../../../api/tests/support/postgres.rs"]
mod postgres;
mod power;
mod quic;
mod receipts;
mod renames;
mod reservations;
mod resuming;
mod roots;
mod routing;
mod source_paths;
mod split;
#[allow(dead_code, reason = "shared with the attacks, which use other parts")]
mod stage;
mod stores;
mod streams;
mod sums;
mod sync;
mod systemd;
mod targets;
mod third_party;
mod tokens;
mod trees;
mod unchanged;
mod unencrypted;
