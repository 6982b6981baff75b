//! The built command on loopback: serve, depot and cp as a person would run them. Every port is chosen by the system.

mod copies;
mod deaths;
mod stage;
