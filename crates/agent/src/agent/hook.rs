//! The program that a job runs at its end.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

use crate::model::Job;

/// Maximum duration of the program.
const HOOK_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs the program with the job in JSON on its standard input, and with the job's number and state
/// in the environment. It is killed when it takes too long. It runs at most once: not at all if the
/// agent ends at this moment.
pub async fn run(command: Vec<String>, job: Job) {
    let Some((program, arguments)) = command.split_first() else {
        return;
    };
    let state = job.state.word();
    let spawned = Command::new(program)
        .args(arguments)
        .env("LONGHAUL_JOB", job.id.to_string())
        .env("LONGHAUL_JOB_STATE", state)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => {
            tracing::warn!(job = job.id, %error, "cannot start the job's on_end program");
            return;
        }
    };
    let text = serde_json::to_vec(&job).unwrap_or_default();
    let ran = async {
        if let Some(mut input) = child.stdin.take() {
            // The program need not read its input.
            let _ = input.write_all(&text).await;
        }
        child.wait().await
    };
    match timeout(HOOK_TIMEOUT, ran).await {
        Ok(Ok(status)) if status.success() => {}
        Ok(Ok(status)) => {
            tracing::warn!(job = job.id, %status, "the job's on_end program failed")
        }
        Ok(Err(error)) => {
            tracing::warn!(job = job.id, %error, "lost track of the job's on_end program")
        }
        Err(_) => tracing::warn!(job = job.id, "the job's on_end program took too long"),
    }
}
