//! Commands that need Linux. On other systems each of them says so, and longhaul is a client.

use std::ffi::OsString;

use anyhow::Result;
use clap::Args;

use crate::exit::Exit;

/// A command was called that needs Linux. Run it on a Linux machine; here, longhaul copies files
/// and submits jobs, but relays no traffic.
#[derive(Debug, thiserror::Error)]
#[error("this command needs Linux; on this system, longhaul is a client")]
pub struct NeedsLinux;

/// Not on this system: needs Linux.
#[derive(Args)]
pub struct LinuxOnly {
    /// Options of the command on Linux.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    options: Vec<OsString>,
}

impl LinuxOnly {
    /// Fails with [`NeedsLinux`], whatever the options are.
    pub fn run(self) -> Result<Exit> {
        drop(self.options);
        Err(NeedsLinux.into())
    }
}

#[cfg(not(target_os = "linux"))]
pub use stubs::*;

#[cfg(not(target_os = "linux"))]
mod stubs {
    use std::process::ExitCode;
    use std::sync::Arc;

    use clap::Args;
    use longhaul_hop::EventLog;
    use longhaul_output::message;
    use longhaul_session::Session;
    use longhaul_transfer::GrantsInForce;

    use super::{LinuxOnly, NeedsLinux};
    use crate::exit::for_error;

    pub mod account_helper {
        //! Servers find no helper, and refuse grants with an account.

        /// `longhaul serve-accounts`.
        pub type ServeAccounts = super::LinuxOnly;
        /// Default socket, where servers ask.
        pub const DEFAULT_SOCKET: &str = "/run/longhaul-accounts/socket";
    }

    pub mod control {
        //! `longhaul control`.
        pub type ControlCommand = super::LinuxOnly;
    }

    pub mod depot {
        //! `longhaul depot`.
        pub type DepotCommand = super::LinuxOnly;
    }

    pub mod node {
        //! `longhaul node`.
        pub type NodeCommand = super::LinuxOnly;
    }

    pub mod offramp {
        //! `longhaul offramp`.
        pub type OfframpCommand = super::LinuxOnly;
    }

    pub mod onramp {
        //! `longhaul onramp`.
        pub type OnrampCommand = super::LinuxOnly;
    }

    pub mod router {
        //! `longhaul router`.
        pub type Router = super::LinuxOnly;
    }

    pub mod run {
        //! `longhaul run`.
        pub use super::RunCommand;
    }

    pub mod doctor {
        //! `longhaul doctor`, and the answers to it.
        pub use super::FactsService;
        pub type Doctor = super::LinuxOnly;
    }

    /// Not on this system: needs Linux.
    #[derive(Args)]
    pub struct RunCommand {
        #[command(flatten)]
        command: LinuxOnly,
    }

    impl RunCommand {
        /// Reports [`NeedsLinux`].
        pub fn run(self) -> ExitCode {
            let answer = self.command.run();
            let error = answer.err().unwrap_or_else(|| NeedsLinux.into());
            message!("longhaul: {error}");
            for_error(&error).into()
        }
    }

    /// Reports no facts: a session that asks for them ends.
    pub struct FactsService;

    impl FactsService {
        /// Creates the service.
        pub fn new(_: Arc<GrantsInForce>, _: Arc<EventLog>) -> Self {
            Self
        }

        /// Ends the session.
        pub async fn answer(&self, session: Session) {
            drop(session);
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        command: LinuxOnly,
    }

    #[test]
    fn any_options_are_answered_with_one_line() {
        let arguments = ["longhaul", "--policy", "policy.toml", "-v", "name"];
        let program = Program::try_parse_from(arguments).unwrap();
        let error = program.command.run().unwrap_err();
        assert!(error.to_string().starts_with("this command needs Linux"));
        assert_eq!(crate::exit::for_error(&error), Exit::Usage);
    }
}
