//! Execution of `tc` and `ip`.

use std::io;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::ask::{DriverError, sanitize_line};
use crate::process::run_program;

/// Time limit of one command. Commands take milliseconds unless the machine is in trouble.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum output of a command, in bytes.
const MAX_OUTPUT_BYTES: usize = 16 << 20;

/// Creates a command from a program and its arguments.
pub type CommandBuilder = Arc<dyn Fn(&str, &[&str]) -> io::Result<Command> + Send + Sync>;

/// Returns a factory for commands on this machine, in this process's own network namespace. Their
/// messages are in English.
#[must_use]
pub fn this_machine() -> CommandBuilder {
    Arc::new(|program, arguments| {
        let mut command = Command::new(program);
        command.args(arguments).env("LC_ALL", "C");
        Ok(command)
    })
}

/// The kernel, accessed through `tc` and `ip`.
pub(super) struct Kernel {
    start: CommandBuilder,
}

impl Kernel {
    pub fn new(start: CommandBuilder) -> Self {
        Self { start }
    }

    /// Runs a program with the blank-separated `words` and the verbatim arguments `more`.
    pub async fn run(
        &self,
        program: &str,
        words: &str,
        more: &[&str],
    ) -> Result<String, DriverError> {
        let failed =
            |why: &dyn std::fmt::Display| DriverError::failed(format!("{program} {words}: {why}"));
        let arguments: Vec<&str> = words
            .split_whitespace()
            .chain(more.iter().copied())
            .collect();
        let command = (self.start)(program, &arguments).map_err(|error| failed(&error))?;
        let ran = run_program(command, &[], COMMAND_TIMEOUT, MAX_OUTPUT_BYTES).await;
        let ran = ran.map_err(|error| failed(&format!("{error} (it is in iproute2)")))?;
        if !ran.status.success() {
            let complaint = sanitize_line(&ran.complaint);
            return Err(failed(&if complaint.is_empty() {
                ran.status.to_string()
            } else {
                complaint
            }));
        }
        String::from_utf8(ran.output).map_err(|_| failed(&"its output is not text"))
    }

    pub async fn tc(&self, words: &str) -> Result<String, DriverError> {
        self.run("tc", words, &[]).await
    }

    pub async fn ip(&self, words: &str) -> Result<String, DriverError> {
        self.run("ip", words, &[]).await
    }
}
