//! Exit codes of errors.

use longhaul_control_client::ClientError;
pub use longhaul_copy_api::Exit;
use longhaul_endpoints::Error as EndpointError;
use longhaul_output::message;
use longhaul_perf::Error as PerfError;
use longhaul_remote::Error as RemoteError;
use longhaul_sftp::Error as SftpError;
use longhaul_tokens::{FetchError, LoginError};
use longhaul_transfer::Error;
use longhaul_transfer::files::FilesError;

use crate::agent_client::AgentError;
use crate::copy_checks::{CatalogueMismatch, ReceiptFailed, StreamFailed};
use crate::local_controller::ControlError;
use crate::runtime::StartError;

/// Returns true if another attempt may succeed after this error.
pub fn is_worth_retrying(error: &anyhow::Error) -> bool {
    let is_passing = |error: &RemoteError| error.is_passing();
    if let Some(SftpError::NoSftp { .. }) = error.downcast_ref() {
        return false;
    }
    match for_error(error) {
        Exit::NoRoute | Exit::BrokeOff => error.downcast_ref().is_none_or(is_passing),
        _ => matches!(error.downcast_ref(), Some(Error::Limit(_))),
    }
}

/// Returns the code for an error.
pub fn for_error(error: &anyhow::Error) -> Exit {
    if let Some(error) = error.downcast_ref::<Error>() {
        for_copy_error(error)
    } else if let Some(error) = error.downcast_ref::<FilesError>() {
        for_files_error(error)
    } else if let Some(error) = error.downcast_ref::<PerfError>() {
        for_perf_error(error)
    } else if let Some(exit) = for_doctor_error(error) {
        exit
    } else if let Some(error) = error.downcast_ref::<RemoteError>() {
        for_far_side_error(error)
    } else if let Some(error) = error.downcast_ref::<SftpError>() {
        for_sftp_error(error)
    } else if let Some(error) = error.downcast_ref::<EndpointError>() {
        for_endpoint_error(error)
    } else if let Some(error) = error.downcast_ref::<LoginError>() {
        for_login_error(error)
    } else if let Some(error) = error.downcast_ref::<AgentError>() {
        match error {
            AgentError::NotRunning(_) | AgentError::NotStarted(_) => Exit::NoRoute,
        }
    } else if let Some(error) = error.downcast_ref::<ClientError>() {
        for_service_error(error)
    } else if let Some(error) = error.downcast_ref::<ControlError>() {
        match error {
            ControlError::NotRunning(_) => Exit::NoRoute,
        }
    } else if error.is::<StartError>()
        || error.is::<ReceiptFailed>()
        || error.is::<CatalogueMismatch>()
        || error.is::<StreamFailed>()
    {
        Exit::SomeFailed
    } else {
        Exit::Usage
    }
}

/// Returns the code for an error of a service client.
fn for_service_error(error: &ClientError) -> Exit {
    use ClientError::*;
    match error {
        NoSocket { .. } | Unreachable { .. } | NotSecure { .. } | Silent { .. } => Exit::NoRoute,
        Unknown { .. } | OtherKey { .. } => Exit::Unauthorised,
        Refused(problem) if matches!(problem.status, 401 | 403) => Exit::Unauthorised,
        Refused(_) => Exit::SomeFailed,
        BrokeOff { .. } => Exit::BrokeOff,
        Answer { .. } => Exit::Disagreement,
        Sign(_) | Request { .. } => Exit::Usage,
    }
}

/// Returns the code for the error that ended a measurement.
fn for_perf_error(error: &PerfError) -> Exit {
    match error {
        PerfError::Connect(error) if error.is_identity_error() => Exit::Unauthorised,
        PerfError::Connect(_) => Exit::NoRoute,
        PerfError::Refused(_) | PerfError::Withdrawn => Exit::SomeFailed,
        PerfError::Cut(_) | PerfError::Silent { .. } | PerfError::Socket { .. } => Exit::BrokeOff,
        PerfError::Protocol(_) | PerfError::Disagreement { .. } => Exit::Disagreement,
    }
}

/// Returns the code for an error of a far side.
fn for_far_side_error(error: &RemoteError) -> Exit {
    use RemoteError::*;
    match error {
        Host { .. } | Path(_) | OwnProgram(_) | Here(_) => Exit::Usage,
        NoSsh { .. } | Login { .. } | Missing { .. } | OtherMachine { .. } | Unfit { .. } => {
            Exit::NoRoute
        }
        NoCommand { .. } | Stuck { .. } | Noisy { .. } => Exit::NoRoute,
        NotBrought { .. } | Apart { .. } | Session(_) => Exit::NoRoute,
        Refused { .. } => Exit::SomeFailed,
        Ended { .. } => Exit::BrokeOff,
        Version { .. } | Answer { .. } | Key(_) => Exit::Disagreement,
        Copy(error) => for_copy_error(error),
    }
}

/// Returns the code for an error of a copy by SFTP.
fn for_sftp_error(error: &SftpError) -> Exit {
    match error {
        SftpError::Location { .. } | SftpError::Unsupported { .. } => Exit::Usage,
        SftpError::NoSftp { .. } => Exit::NoRoute,
        SftpError::NotSftp { .. } => Exit::Disagreement,
        SftpError::BrokeOff { .. } => Exit::BrokeOff,
        SftpError::Path { .. } => Exit::SomeFailed,
        SftpError::Login(error) => for_far_side_error(error),
        SftpError::Copy(error) => for_copy_error(error),
    }
}

/// Returns the code for an error of a copy with a store.
fn for_endpoint_error(error: &EndpointError) -> Exit {
    use EndpointError::*;
    match error {
        Location { .. } | PasswordInUrl { .. } | Settings { .. } | Unsupported { .. } => {
            Exit::Usage
        }
        NoCredentials { .. } | Denied { .. } => Exit::Unauthorised,
        Unreachable { .. } => Exit::NoRoute,
        BrokeOff { .. } => Exit::BrokeOff,
        NoBucket { .. } | Refused { .. } | Path { .. } => Exit::SomeFailed,
        Copy(error) => for_copy_error(error),
    }
}

/// Returns the code for an error of a login.
fn for_login_error(error: &LoginError) -> Exit {
    use LoginError::*;
    match error {
        Url(_) | File { .. } | NoDeviceCodes { .. } => Exit::Usage,
        Fetch(FetchError::Unreachable { .. }) => Exit::NoRoute,
        Fetch(FetchError::Status { .. } | FetchError::Answer { .. }) => Exit::Disagreement,
        Refused { .. } | NotConfirmed { .. } | Ended { .. } | NotRenewed { .. } => {
            Exit::Unauthorised
        }
    }
}

/// Returns the code for an error of the doctor: of a question to another machine, or of a probe.
#[cfg(target_os = "linux")]
fn for_doctor_error(error: &anyhow::Error) -> Option<Exit> {
    use longhaul_doctor::AskError;
    use longhaul_doctor::probe::ProbeError;

    if error.is::<ProbeError>() {
        return Some(Exit::NoRoute);
    }
    Some(match error.downcast_ref()? {
        AskError::Refused(_) => Exit::Unauthorised,
        AskError::Stream(_) | AskError::Silent => Exit::BrokeOff,
        AskError::NotUnderstood => Exit::Disagreement,
    })
}

#[cfg(not(target_os = "linux"))]
fn for_doctor_error(_: &anyhow::Error) -> Option<Exit> {
    None
}

/// Returns the code for an error in a server's answer about files.
fn for_files_error(error: &FilesError) -> Exit {
    match error {
        FilesError::Connect(error) => for_copy_error(error),
        FilesError::Refused(_) => Exit::SomeFailed,
        FilesError::Unauthorised(_) => Exit::Unauthorised,
        FilesError::Broken(_) | FilesError::Silent => Exit::BrokeOff,
        FilesError::Protocol(_) => Exit::Disagreement,
    }
}

/// Returns the code for the error that ended a copy.
pub fn for_copy_error(error: &Error) -> Exit {
    match error {
        Error::Connect(_) => Exit::NoRoute,
        Error::Unauthorised(_) | Error::Token(_) => Exit::Unauthorised,
        Error::StreamsLost(_) | Error::Stream(_) | Error::CopyLost(_) => Exit::BrokeOff,
        Error::Protocol(_) | Error::NotAsked(_) | Error::Disagreement => Exit::Disagreement,
        Error::Path { .. } => Exit::Usage,
        Error::Refused(_) | Error::Limit(_) => Exit::SomeFailed,
    }
}

/// Returns the code of a command whose output may be incomplete. The work counts, but a script
/// must not take partial output for all of it.
pub fn with_output(exit: Exit, error: Option<std::io::Error>) -> Exit {
    let Some(error) = error else { return exit };
    message!("longhaul: writing standard output failed: {error}");
    match exit {
        Exit::Success => Exit::SomeFailed,
        failed => failed,
    }
}
