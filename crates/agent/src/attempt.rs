//! One attempt at a job: a process of this program that copies, its output, and how it is stopped.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use longhaul_jobs::AttemptResult;
use longhaul_proto::text::printable;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::model::Progress;
use crate::store::AttemptEnd;

/// Maximum time for a copy to make its data durable when asked to stop. It takes ten seconds at
/// most by itself.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum size of error output that is kept, in bytes; the end is kept.
const MAX_ERROR_BYTES: usize = 2000;
/// Maximum size of a JSON line, in bytes. A report lists up to a thousand failures.
const MAX_LINE_BYTES: u64 = 16 << 20;

/// Program that copies, with arguments in front of the job's.
#[derive(Debug, Clone)]
pub struct CopyProgram {
    /// Path of the program.
    pub file: PathBuf,
    /// Arguments in front of the job's.
    pub arguments: Vec<String>,
}

/// End of an attempt.
#[derive(Debug)]
pub struct FinishedAttempt {
    pub end: AttemptResult,
    pub with: AttemptEnd,
}

/// Runs the program with `arguments` until it ends or `stop` is true. `progress` receives its
/// progress.
pub async fn run(
    program: &CopyProgram,
    arguments: &[String],
    mut stop: watch::Receiver<bool>,
    progress: &watch::Sender<Option<Progress>>,
) -> FinishedAttempt {
    let mut command = Command::new(&program.file);
    command
        .args(&program.arguments)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            return FinishedAttempt {
                end: AttemptResult::BrokeOff { advanced: false },
                with: AttemptEnd {
                    error: Some(format!("cannot start {}: {error}", program.file.display())),
                    ..AttemptEnd::default()
                },
            };
        }
    };
    let (out, errors) = (child.stdout.take(), child.stderr.take());
    let received = async { tokio::join!(read_reports(out, progress), read_error_output(errors)) };
    let watched = async {
        tokio::pin!(received);
        let told_to_stop = async {
            // The sender exists while the attempt is wanted, so its end also means to stop.
            let _ = stop.wait_for(|stop| *stop).await;
        };
        tokio::select! {
            received = &mut received => return received,
            () = told_to_stop => {}
        }
        request_stop(&child);
        match timeout(STOP_TIMEOUT, received).await {
            Ok(received) => received,
            Err(_) => (None, "it did not stop when asked to".to_owned()),
        }
    };
    let (report, errors) = watched.await;
    let status = match timeout(STOP_TIMEOUT, child.wait()).await {
        Ok(Ok(status)) => Some(status),
        _ => {
            let _ = child.kill().await;
            None
        }
    };
    let was_stopped = stop.has_changed().is_err() || *stop.borrow();
    let come = progress.borrow().clone();
    attempt_result(status, was_stopped, report, &errors, come)
}

/// Asks the process to stop gracefully.
fn request_stop(child: &Child) {
    let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
    if let Some(pid) = pid {
        // The process may just have ended.
        let _ = kill_process(pid, Signal::TERM);
    }
}

/// Reads the JSON lines of the output and returns the last one, the report.
async fn read_reports(
    out: Option<impl AsyncRead + Unpin>,
    progress: &watch::Sender<Option<Progress>>,
) -> Option<Value> {
    let mut lines = BufReader::new(out?);
    let mut report = None;
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut lines)
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut line)
            .await;
        if read.ok()? == 0 {
            return report;
        }
        // The rest of a line that is too long is not valid JSON either.
        let Ok(value) = serde_json::from_slice::<Value>(&line) else {
            continue;
        };
        match value.get("event").and_then(Value::as_str) {
            Some("progress") => {
                if let Ok(come) = serde_json::from_value(value) {
                    progress.send_replace(Some(come));
                }
            }
            Some("report") => report = Some(value),
            _ => {}
        }
    }
}

/// Returns the end of the error output.
async fn read_error_output(errors: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut errors) = errors else {
        return String::new();
    };
    let (mut last, mut buffer) = (Vec::new(), [0; 1024]);
    while let Ok(read @ 1..) = errors.read(&mut buffer).await {
        last.extend_from_slice(buffer.get(..read).unwrap_or_default());
        let beyond = last.len().saturating_sub(MAX_ERROR_BYTES);
        last.drain(..beyond);
    }
    let line = last
        .split(|&byte| byte == b'\n')
        .rfind(|line| !line.is_empty());
    printable(line.unwrap_or_default())
}

/// Determines the result of an attempt. The report decides if a retry may help; without one, the
/// exit code does.
fn attempt_result(
    status: Option<ExitStatus>,
    was_stopped: bool,
    report: Option<Value>,
    errors: &str,
    come: Option<Progress>,
) -> FinishedAttempt {
    const DONE: i32 = 0;
    const NO_ROUTE: i32 = 3;
    const BROKE_OFF: i32 = 5;
    const INTERRUPTED: i32 = 130;
    let number = |name: &str| report.as_ref()?.get(name)?.as_u64();
    let there = number("bytes")
        .or(come.as_ref().map(|come| come.bytes))
        .unwrap_or(0);
    let before =
        ["resumed_bytes", "unchanged_bytes", "linked_bytes"].map(|name| number(name).unwrap_or(0));
    let travelled = there.saturating_sub(before.iter().sum());
    let advanced = travelled > 0;
    let code = status.and_then(|status| status.code());
    let worth_retrying = report
        .as_ref()
        .and_then(|report| report.get("worth_retrying")?.as_bool());
    let end = match code {
        Some(DONE) => AttemptResult::Done,
        _ if was_stopped => AttemptResult::Stopped,
        _ if worth_retrying == Some(true) => AttemptResult::BrokeOff { advanced },
        // A host that never answers stays so until a person changes it.
        Some(NO_ROUTE) if worth_retrying == Some(false) => AttemptResult::Failed,
        Some(NO_ROUTE | BROKE_OFF | INTERRUPTED) | None => AttemptResult::BrokeOff { advanced },
        Some(_) => AttemptResult::Failed,
    };
    let said = report
        .as_ref()
        .and_then(|report| report.get("error")?.as_str().map(str::to_owned));
    let failures = number("failed").filter(|failed| *failed > 0);
    let error = match end {
        AttemptResult::Done => None,
        AttemptResult::Stopped => None,
        _ => said
            .or(failures.map(|failed| match failed {
                1 => "1 file was not copied: the report names it".to_owned(),
                failed => format!("{failed} files were not copied: the report names them"),
            }))
            .or((!errors.is_empty()).then(|| errors.to_owned()))
            .or(Some("the process of the copy was killed".to_owned())),
    };
    FinishedAttempt {
        end,
        with: AttemptEnd {
            error,
            exit_code: code.map(i64::from),
            progress: final_progress(report.as_ref(), come)
                .and_then(|come| serde_json::to_string(&come).ok()),
            travelled: i64::try_from(travelled).unwrap_or(i64::MAX),
            report: report.map(|report| report.to_string()),
        },
    }
}

/// Returns the final progress: the last values, replaced by those of the closing report.
fn final_progress(report: Option<&Value>, last: Option<Progress>) -> Option<Progress> {
    let Some(report) = report else {
        return last;
    };
    let number = |name: &str| report.get(name).and_then(Value::as_u64);
    let rate = |name: &str| report.get(name).and_then(Value::as_f64);
    let last = last.unwrap_or_default();
    let bytes = number("bytes").unwrap_or(last.bytes);
    let is_done = report.get("ok").and_then(Value::as_bool) == Some(true);
    Some(Progress {
        seconds: rate("seconds").unwrap_or(last.seconds),
        bytes,
        bytes_found: last.bytes_found.max(bytes),
        walk_complete: last.walk_complete || is_done,
        files: number("files").unwrap_or(last.files),
        entries_found: number("entries").unwrap_or(last.entries_found),
        bps: rate("goodput_bps").unwrap_or(last.bps),
        routes_bps: last.routes_bps,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use serde_json::json;

    use super::*;

    fn with_code(code: i32, was_stopped: bool, report: Option<Value>) -> FinishedAttempt {
        attempt_result(
            Some(ExitStatus::from_raw(code << 8)),
            was_stopped,
            report,
            "",
            None,
        )
    }

    #[test]
    fn exit_codes_decide_if_an_attempt_is_retried() {
        let report = |bytes: u64, resumed: u64| {
            Some(json!({"bytes": bytes, "resumed_bytes": resumed, "error": "the path is gone"}))
        };
        assert_eq!(with_code(0, false, None).end, AttemptResult::Done);
        // It was complete when it was told to stop.
        assert_eq!(with_code(0, true, None).end, AttemptResult::Done);
        for code in [1, 2, 4, 6] {
            assert_eq!(with_code(code, false, None).end, AttemptResult::Failed);
        }
        for code in [3, 5, 130] {
            assert_eq!(
                with_code(code, false, report(10, 10)).end,
                AttemptResult::BrokeOff { advanced: false }
            );
            assert_eq!(
                with_code(code, false, report(10, 9)).end,
                AttemptResult::BrokeOff { advanced: true }
            );
            assert_eq!(
                with_code(code, true, report(10, 9)).end,
                AttemptResult::Stopped
            );
        }
        let for_good = with_code(3, false, Some(json!({"worth_retrying": false})));
        assert_eq!(for_good.end, AttemptResult::Failed);
        let busy = with_code(1, false, Some(json!({"worth_retrying": true})));
        assert_eq!(busy.end, AttemptResult::BrokeOff { advanced: false });
        let broke = with_code(5, false, report(10, 4));
        assert_eq!(broke.with.error.as_deref(), Some("the path is gone"));
        assert_eq!((broke.with.travelled, broke.with.exit_code), (6, Some(5)));
        // A short copy reports no progress before its end.
        let short = with_code(
            0,
            false,
            Some(json!({"ok": true, "bytes": 7, "files": 1, "seconds": 0.1, "goodput_bps": 560.0})),
        );
        let come: Progress = serde_json::from_str(&short.with.progress.unwrap()).unwrap();
        assert_eq!(
            (come.bytes, come.bytes_found, come.walk_complete, come.files),
            (7, 7, true, 1)
        );
        let killed = attempt_result(Some(ExitStatus::from_raw(9)), false, None, "", None);
        assert_eq!(killed.end, AttemptResult::BrokeOff { advanced: false });
    }

    #[tokio::test]
    async fn output_is_kept_within_bounds() {
        let (progress, seen) = watch::channel(None);
        let lines = b"not json\n{\"event\":\"progress\",\"bytes\":7,\"later\":1}\n\
            {\"event\":\"report\",\"bytes\":9}\n";
        let report = read_reports(Some(&lines[..]), &progress).await.unwrap();
        assert_eq!(report["bytes"], 9);
        assert_eq!(seen.borrow().as_ref().unwrap().bytes, 7);
        let many = [b"x".repeat(5000), b"\nthe last \x1bline\n".to_vec()].concat();
        assert_eq!(
            read_error_output(Some(&many[..])).await,
            "the last \\u{1b}line"
        );
        assert_eq!(
            read_error_output(Some(&b"y".repeat(5000)[..])).await.len(),
            MAX_ERROR_BYTES
        );
    }
}
