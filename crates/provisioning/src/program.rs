//! A driver that runs a program of the operator once for each request. The program reads the
//! request as one JSON object from its standard input, and writes its answer as one to its standard
//! output. `docs/circuits.md` describes both.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::ask::{
    DriverError, DriverReply, DriverRequest, MAX_REPLY_BYTES, encode_request, read_reply,
    sanitize_line,
};
use crate::driver::{Driver, DriverFuture};
use crate::process::{ProgramOutput, RunError, run_program};

/// Default time limit of a program.
pub const DEFAULT_PROGRAM_TIMEOUT: Duration = Duration::from_secs(30);

/// A program of the operator.
#[derive(Debug, Clone)]
pub struct ProgramDriver {
    program: PathBuf,
    arguments: Vec<String>,
    time: Duration,
}

impl ProgramDriver {
    /// Creates a driver from a program, its arguments and its time limit. The program inherits the
    /// environment and the working directory.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, arguments: Vec<String>, time: Duration) -> Self {
        Self {
            program: program.into(),
            arguments,
            time,
        }
    }

    async fn run(&self, request: &DriverRequest) -> Result<DriverReply, DriverError> {
        let line = encode_request(request)?;
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        match run_program(command, &line, self.time, MAX_REPLY_BYTES).await {
            Ok(ran) => read_answer(&self.program, &ran),
            Err(error @ RunError::TooMuch(_)) => Err(DriverError::nonsense(describe_fault(
                &self.program,
                &error.to_string(),
            ))),
            Err(error) => Err(DriverError::failed(describe_fault(
                &self.program,
                &error.to_string(),
            ))),
        }
    }
}

fn describe_fault(program: &Path, what: &str) -> String {
    format!("program {}: {what}", program.display())
}

fn read_answer(program: &Path, ran: &ProgramOutput) -> Result<DriverReply, DriverError> {
    let complaint = sanitize_line(&ran.complaint);
    let complained = if complaint.is_empty() {
        String::new()
    } else {
        format!(": {complaint}")
    };
    if ran.output.trim_ascii().is_empty() {
        let what = format!("it gave no answer ({}){complained}", ran.status);
        return Err(DriverError::failed(describe_fault(program, &what)));
    }
    match (read_reply(ran.output.trim_ascii()), ran.status.success()) {
        (Ok(DriverReply::Error(error)), _) => Err(error),
        (Ok(reply), true) => Ok(reply),
        // Something failed after it had reported success.
        (Ok(_), false) => {
            let what = format!("it ended with {}{complained}", ran.status);
            Err(DriverError::failed(describe_fault(program, &what)))
        }
        (Err(DriverError::Nonsense { why }), _) => Err(DriverError::nonsense(describe_fault(
            program,
            &format!("{why}{complained}"),
        ))),
        (Err(error), _) => Err(error),
    }
}

impl Driver for ProgramDriver {
    fn ask<'a>(&'a self, request: &'a DriverRequest) -> DriverFuture<'a, DriverReply> {
        Box::pin(self.run(request))
    }
}
