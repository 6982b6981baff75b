//! Shell of a service: what every listening program does besides its own work.
//!
//! | item | purpose |
//! |---|---|
//! | [`open_listeners`], [`bind_everywhere`] | open listeners |
//! | [`ConnectionHandler`] | accepts connections within a gate, and serves each in its own task |
//! | [`OpenAdmission`] | checks OPENs, and admits none twice |
//! | [`Shell`] | runs the tasks of a service, and drains it |
//! | [`Hangup`] | reads files again at SIGHUP |
//! | [`Handover`] | replaces the process at SIGUSR2, and hands over its listeners |
//! | [`systemd`] | tells systemd that the service is ready, reloads, stops, is alive |
//! | [`StatusPage`] | `/metrics`, `/healthz` and `/readyz` |
//! | [`http`] | HTTP connections within bounds that hold for any behaviour of the peers |

#![forbid(unsafe_code)]

mod accept;
mod admission;
mod drain;
mod error;
mod handover;
pub mod http;
mod listen;
mod page;
mod reload;
mod shell;
pub mod systemd;

pub use accept::{ConnectionHandler, Interruption, PendingConnection, SetupGuard};
pub use admission::{OpenAdmission, RegistrationError, is_registration};
pub use drain::{Phase, PhaseReceiver, ServiceLife};
pub use error::Error;
pub use handover::{Handover, is_handed_over, notify_ready};
pub use listen::{bind_everywhere, open_listeners};
pub use page::{MetricsPage, Readiness, StatusListener, StatusPage, encode};
pub use reload::Hangup;
pub use shell::Shell;
