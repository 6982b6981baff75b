//! A driver that runs a program of the operator once for each request. The program reads the
//! request as one JSON object from its standard input, and writes its answer as one to its standard
//! output. `docs/circuits.md` describes both.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::ask::{
    DriverError, MAX_REPLY_BYTES, Reply, Request, one_line, read_reply, request_line,
};
use crate::driver::{Answer, Driver};
use crate::process::{Ran, RunError, run};

/// Default time limit of a program.
pub const PROGRAM_TIME: Duration = Duration::from_secs(30);

/// A program of the operator.
#[derive(Debug, Clone)]
pub struct Program {
    program: PathBuf,
    arguments: Vec<String>,
    time: Duration,
}

impl Program {
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

    async fn run(&self, request: &Request) -> Result<Reply, DriverError> {
        let line = request_line(request)?;
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        match run(command, &line, self.time, MAX_REPLY_BYTES).await {
            Ok(ran) => answer(&self.program, &ran),
            Err(error @ RunError::TooMuch(_)) => {
                Err(DriverError::nonsense(of(&self.program, &error.to_string())))
            }
            Err(error) => Err(DriverError::failed(of(&self.program, &error.to_string()))),
        }
    }
}

fn of(program: &Path, what: &str) -> String {
    format!("program {}: {what}", program.display())
}

fn answer(program: &Path, ran: &Ran) -> Result<Reply, DriverError> {
    let complaint = one_line(&ran.complaint);
    let complained = if complaint.is_empty() {
        String::new()
    } else {
        format!(": {complaint}")
    };
    if ran.output.trim_ascii().is_empty() {
        let what = format!("it answered nothing ({}){complained}", ran.status);
        return Err(DriverError::failed(of(program, &what)));
    }
    match (read_reply(ran.output.trim_ascii()), ran.status.success()) {
        (Ok(Reply::Error(error)), _) => Err(error),
        (Ok(reply), true) => Ok(reply),
        // Something failed after it had reported success.
        (Ok(_), false) => {
            let what = format!("it ended with {}{complained}", ran.status);
            Err(DriverError::failed(of(program, &what)))
        }
        (Err(DriverError::Nonsense { why }), _) => Err(DriverError::nonsense(of(
            program,
            &format!("{why}{complained}"),
        ))),
        (Err(error), _) => Err(error),
    }
}

impl Driver for Program {
    fn ask<'a>(&'a self, request: &'a Request) -> Answer<'a, Reply> {
        Box::pin(self.run(request))
    }
}
