//! Runs a program once, within a time limit and with bounded output.

use std::io;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// Maximum number of bytes of standard error to keep.
const MAX_STDERR_BYTES: u64 = 4 << 10;

/// Output of a program.
#[derive(Debug)]
pub struct ProgramOutput {
    /// Exit status.
    pub status: ExitStatus,
    /// Complete standard output.
    pub output: Vec<u8>,
    /// Beginning of standard error.
    pub complaint: String,
}

/// Reason why a program has no output.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It could not be started: check that it exists and is executable.
    #[error("it cannot be started ({0}): check that it exists and is executable")]
    Start(io::Error),
    /// It took too long, and was killed with its whole process group.
    #[error("it took longer than {} s and was killed", .0.as_secs_f64())]
    Time(Duration),
    /// It wrote too much, and was killed with its whole process group.
    #[error("it wrote more than {0} bytes and was killed")]
    TooMuch(usize),
    /// Communication with it failed.
    #[error("communication with it failed ({0})")]
    Lost(#[from] io::Error),
}

/// A process group that is killed unless it has ended well.
struct ProcessGroup(Option<Pid>);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(group) = self.0.take() {
            // Its leader has not been reaped, so the number is still its own.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Runs a command in its own process group, with `input` on its standard input.
///
/// # Errors
/// [`RunError`]. A program that exits with a failure is not an error.
pub async fn run_program(
    command: Command,
    input: &[u8],
    time: Duration,
    most: usize,
) -> Result<ProgramOutput, RunError> {
    let mut child = tokio::process::Command::from(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(RunError::Start)?;
    // Dropped before the child, which has not been reaped by then.
    let pid = child
        .id()
        .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let mut group = ProcessGroup(pid);
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let feeding = async {
        if let Some(mut stdin) = stdin {
            // The program need not read it.
            let _ = stdin.write_all(input).await;
        }
        Ok::<(), RunError>(())
    };
    let ran = async {
        let (_, output, complaint) =
            tokio::try_join!(feeding, read_all(stdout, most), read_beginning(stderr))?;
        let status = child.wait().await?;
        Ok(ProgramOutput {
            status,
            output,
            complaint,
        })
    };
    let ran = timeout(time, ran)
        .await
        .unwrap_or(Err(RunError::Time(time)));
    if ran.is_ok() {
        group.0 = None;
    }
    ran
}

async fn read_all(
    stream: Option<impl AsyncRead + Unpin>,
    most: usize,
) -> Result<Vec<u8>, RunError> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        let bound = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
        stream.take(bound).read_to_end(&mut bytes).await?;
    }
    if bytes.len() > most {
        return Err(RunError::TooMuch(most));
    }
    Ok(bytes)
}

async fn read_beginning(stream: Option<impl AsyncRead + Unpin>) -> Result<String, RunError> {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        (&mut stream)
            .take(MAX_STDERR_BYTES)
            .read_to_end(&mut bytes)
            .await?;
        // The rest is read so that the program does not block on writing it.
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
