//! Wishes become circuits: decides when a connection gets a circuit of its own, asks for it, and
//! returns it when it is no longer used.
//!
//! The circuit is reserved *around* the connection, by its addresses and ports, while its bytes
//! flow. So the connection never waits, and a flow that turns out to be long moves to a circuit
//! without being dialled again. Whatever happens to the circuit, the connection continues as best
//! effort.
//!
//! | module | purpose |
//! |---|---|
//! | [`terms`] | what a connection may reserve: its own wish, or the default of a rule. Pure |
//! | [`planner`] | when to ask, which offer to take, when to return. Pure, in virtual time |
//! | [`broker`] | the interface to a controller, which the caller implements |
//! | [`driver`] | the task that carries the planner's decisions out |

#![forbid(unsafe_code)]

pub mod broker;
pub mod driver;
mod held_hop;
pub mod planner;
pub mod terms;

pub use broker::{
    BrokerFuture, CircuitAnswer, CircuitBroker, CircuitState, OfferedCircuit, ReservedCircuit,
    WantedCircuit,
};
pub use driver::{CircuitEvent, DrivenFlow, FlowLink, drive};
pub use held_hop::{HeldHop, HeldRate};
pub use terms::{FlowDirection, ReserveDefault, ReserveRule, ReserveTerms, StatedWish};
