//! Exit codes that scripts may rely on. They are listed in the help and in `docs/copying.md`.

use std::process::ExitCode;

use longhaul_control_client::ClientError;
use longhaul_doctor::AskError;
use longhaul_doctor::probe::ProbeError;
use longhaul_output::message;
use longhaul_perf::Error as PerfError;
use longhaul_remote::Error as RemoteError;
use longhaul_transfer::Error;
use longhaul_transfer::files::FilesError;

use crate::agent_client::AgentError;
use crate::local_controller::ControlError;
use crate::runtime::StartError;

/// Result of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Everything was done.
    Success = 0,
    /// Some files were not copied, or the server refused; of `doctor`, something costs bandwidth.
    SomeFailed = 1,
    /// The command line, or a file it names, is wrong.
    Usage = 2,
    /// The server could not be reached by any route.
    NoRoute = 3,
    /// A depot or the server refuses this key, or the server's key is not the expected one.
    Unauthorised = 4,
    /// The copy or measurement broke off.
    BrokeOff = 5,
    /// The two sides disagree or do not understand each other.
    Disagreement = 6,
    /// Interrupted by a signal.
    Interrupted = 130,
}

impl Exit {
    /// Returns true if another attempt may succeed after this error.
    pub fn is_worth_retrying(error: &anyhow::Error) -> bool {
        let is_passing = |error: &RemoteError| error.is_passing();
        match Self::for_error(error) {
            Self::NoRoute | Self::BrokeOff => error.downcast_ref().is_none_or(is_passing),
            _ => matches!(error.downcast_ref(), Some(Error::Limit(_))),
        }
    }

    /// Returns the code for an error.
    pub fn for_error(error: &anyhow::Error) -> Self {
        if let Some(error) = error.downcast_ref::<Error>() {
            Self::for_copy_error(error)
        } else if let Some(error) = error.downcast_ref::<FilesError>() {
            Self::for_files_error(error)
        } else if let Some(error) = error.downcast_ref::<PerfError>() {
            Self::for_perf_error(error)
        } else if let Some(error) = error.downcast_ref::<AskError>() {
            Self::for_question_error(error)
        } else if let Some(error) = error.downcast_ref::<RemoteError>() {
            Self::for_far_side_error(error)
        } else if let Some(error) = error.downcast_ref::<AgentError>() {
            match error {
                AgentError::NotRunning(_) | AgentError::NotStarted(_) => Self::NoRoute,
            }
        } else if let Some(error) = error.downcast_ref::<ClientError>() {
            Self::for_service_error(error)
        } else if let Some(error) = error.downcast_ref::<ControlError>() {
            match error {
                ControlError::NotRunning(_) => Self::NoRoute,
            }
        } else if error.is::<StartError>() {
            Self::SomeFailed
        } else if error.is::<ProbeError>() {
            Self::NoRoute
        } else {
            Self::Usage
        }
    }

    /// Returns the code for an error of a service client.
    fn for_service_error(error: &ClientError) -> Self {
        use ClientError::*;
        match error {
            NoSocket { .. } | Unreachable { .. } | NotSecure { .. } | Silent { .. } => {
                Self::NoRoute
            }
            Unknown { .. } | OtherKey { .. } => Self::Unauthorised,
            Refused(problem) if matches!(problem.status, 401 | 403) => Self::Unauthorised,
            Refused(_) => Self::SomeFailed,
            BrokeOff { .. } => Self::BrokeOff,
            Answer { .. } => Self::Disagreement,
            Sign(_) | Request { .. } => Self::Usage,
        }
    }

    /// Returns the code for the error that ended a measurement.
    fn for_perf_error(error: &PerfError) -> Self {
        match error {
            PerfError::Connect(error) if error.is_identity_error() => Self::Unauthorised,
            PerfError::Connect(_) => Self::NoRoute,
            PerfError::Refused(_) => Self::SomeFailed,
            PerfError::Cut(_) | PerfError::Silent { .. } | PerfError::Socket { .. } => {
                Self::BrokeOff
            }
            PerfError::Protocol(_) | PerfError::Disagreement { .. } => Self::Disagreement,
        }
    }

    /// Returns the code for an error of a far side.
    fn for_far_side_error(error: &RemoteError) -> Self {
        use RemoteError::*;
        match error {
            Host { .. } | Path(_) | OwnProgram(_) | Here(_) => Self::Usage,
            NoSsh { .. } | Login { .. } | Missing { .. } | OtherMachine { .. } | Unfit { .. } => {
                Self::NoRoute
            }
            NoCommand { .. } | Stuck { .. } | Noisy { .. } => Self::NoRoute,
            NotBrought { .. } | Apart { .. } | Session(_) => Self::NoRoute,
            Refused { .. } => Self::SomeFailed,
            Ended { .. } => Self::BrokeOff,
            Version { .. } | Answer { .. } | Key(_) => Self::Disagreement,
            Copy(error) => Self::for_copy_error(error),
        }
    }

    /// Returns the code for the error that ended a question to another machine.
    fn for_question_error(error: &AskError) -> Self {
        match error {
            AskError::Refused(_) => Self::Unauthorised,
            AskError::Stream(_) | AskError::Silent => Self::BrokeOff,
            AskError::NotUnderstood => Self::Disagreement,
        }
    }

    /// Returns the code for an error in a server's answer about files.
    fn for_files_error(error: &FilesError) -> Self {
        match error {
            FilesError::Connect(error) => Self::for_copy_error(error),
            FilesError::Refused(_) => Self::SomeFailed,
            FilesError::Unauthorised(_) => Self::Unauthorised,
            FilesError::Broken(_) | FilesError::Silent => Self::BrokeOff,
            FilesError::Protocol(_) => Self::Disagreement,
        }
    }

    /// Returns the code for the error that ended a copy.
    pub fn for_copy_error(error: &Error) -> Self {
        match error {
            Error::Connect(_) => Self::NoRoute,
            Error::Unauthorised(_) => Self::Unauthorised,
            Error::StreamsLost(_) | Error::Stream(_) | Error::CopyLost(_) => Self::BrokeOff,
            Error::Protocol(_) | Error::NotAsked(_) | Error::Disagreement => Self::Disagreement,
            Error::Path { .. } => Self::Usage,
            Error::Refused(_) | Error::Limit(_) => Self::SomeFailed,
        }
    }

    /// Returns the code of a command whose output may be incomplete. The work counts, but a script
    /// must not take partial output for all of it.
    pub fn with_output(self, error: Option<std::io::Error>) -> Self {
        let Some(error) = error else { return self };
        message!("longhaul: writing standard output failed: {error}");
        match self {
            Self::Success => Self::SomeFailed,
            failed => failed,
        }
    }

    /// Returns the variant with that number.
    pub fn from_code(code: Option<i64>) -> Option<Self> {
        let all = [
            Self::Success,
            Self::SomeFailed,
            Self::Usage,
            Self::NoRoute,
            Self::Unauthorised,
            Self::BrokeOff,
            Self::Disagreement,
            Self::Interrupted,
        ];
        all.into_iter()
            .find(|exit| Some(i64::from(exit.code())) == code)
    }

    /// Returns the number.
    pub fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
