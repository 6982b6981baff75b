//! One attempt at a job: a process of this program that copies, its output, and how it is stopped.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use longhaul_copy_api::{CopyEvent, CopyReport, Exit, Progress};
use longhaul_proto::text::printable;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::jobs::AttemptResult;
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
    let last = progress.borrow().clone();
    attempt_result(status, was_stopped, report, &errors, last)
}

/// Asks the process to stop gracefully.
fn request_stop(child: &Child) {
    let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
    if let Some(pid) = pid {
        // The process may just have ended.
        let _ = kill_process(pid, Signal::TERM);
    }
}

/// The closing report of a copy.
struct ReceivedReport {
    report: CopyReport,
    /// The report verbatim, with all fields.
    text: String,
}

/// Reads the JSON lines of the output and returns the last one, the report.
async fn read_reports(
    out: Option<impl AsyncRead + Unpin>,
    progress: &watch::Sender<Option<Progress>>,
) -> Option<ReceivedReport> {
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
        match serde_json::from_slice(&line) {
            Ok(CopyEvent::Progress { progress: now, .. }) => {
                progress.send_replace(Some(now));
            }
            Ok(CopyEvent::Report(received)) => {
                report = Some(ReceivedReport {
                    report: received,
                    text: String::from_utf8_lossy(line.trim_ascii()).into_owned(),
                });
            }
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
    received: Option<ReceivedReport>,
    errors: &str,
    last: Option<Progress>,
) -> FinishedAttempt {
    let report = received.as_ref().map(|received| &received.report);
    let travelled = match (report, &last) {
        (Some(report), _) => report.transferred_bytes(),
        (None, Some(last)) => last.bytes,
        (None, None) => 0,
    };
    let advanced = travelled > 0;
    let code = status.and_then(|status| status.code()).map(i64::from);
    let worth_retrying = report.map(|report| report.worth_retrying);
    let end = match (code, code.and_then(Exit::from_code)) {
        (_, Some(Exit::Success)) => AttemptResult::Done,
        _ if was_stopped => AttemptResult::Stopped,
        _ if worth_retrying == Some(true) => AttemptResult::BrokeOff { advanced },
        // A host that never answers stays so until a person changes it.
        (_, Some(Exit::NoRoute)) if worth_retrying == Some(false) => AttemptResult::Failed,
        (None, _) | (_, Some(Exit::NoRoute | Exit::BrokeOff | Exit::Interrupted)) => {
            AttemptResult::BrokeOff { advanced }
        }
        _ => AttemptResult::Failed,
    };
    let error = match end {
        AttemptResult::Done | AttemptResult::Stopped => None,
        _ => Some(error_text(report, errors)),
    };
    FinishedAttempt {
        end,
        with: AttemptEnd {
            error,
            exit_code: code,
            progress: final_progress(report, last)
                .and_then(|progress| serde_json::to_string(&progress).ok()),
            travelled: i64::try_from(travelled).unwrap_or(i64::MAX),
            report: received.map(|received| received.text),
        },
    }
}

/// Returns why an attempt ended before all was copied.
fn error_text(report: Option<&CopyReport>, errors: &str) -> String {
    let reported = report.and_then(|report| match (&report.error, report.failed) {
        (Some(error), _) => Some(error.clone()),
        (None, 0) => None,
        (None, 1) => Some("1 file was not copied: the report names it".to_owned()),
        (None, failed) => Some(format!(
            "{failed} files were not copied: the report names them"
        )),
    });
    reported.unwrap_or_else(|| match errors.is_empty() {
        false => errors.to_owned(),
        true => "the process of the copy was killed".to_owned(),
    })
}

/// Returns the final progress: the last values, replaced by those of the closing report.
fn final_progress(report: Option<&CopyReport>, last: Option<Progress>) -> Option<Progress> {
    let Some(report) = report else {
        return last;
    };
    let last = last.unwrap_or_default();
    Some(Progress {
        seconds: report.seconds,
        bytes: report.bytes,
        bytes_found: last.bytes_found.max(report.bytes),
        walk_complete: last.walk_complete || report.ok,
        files: report.files,
        entries_found: report.entries,
        bps: report.goodput_bps,
        routes_bps: last.routes_bps,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    fn with_code(code: i32, was_stopped: bool, report: Option<CopyReport>) -> FinishedAttempt {
        let received = report.map(|report| ReceivedReport {
            report,
            text: String::new(),
        });
        attempt_result(
            Some(ExitStatus::from_raw(code << 8)),
            was_stopped,
            received,
            "",
            None,
        )
    }

    #[test]
    fn exit_codes_decide_if_an_attempt_is_retried() {
        let report = |bytes: u64, resumed: u64| {
            Some(CopyReport {
                bytes,
                resumed_bytes: resumed,
                error: Some("the path is gone".to_owned()),
                worth_retrying: true,
                ..CopyReport::default()
            })
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
        let for_good = with_code(3, false, Some(CopyReport::default()));
        assert_eq!(for_good.end, AttemptResult::Failed);
        let busy = CopyReport {
            worth_retrying: true,
            ..CopyReport::default()
        };
        let busy = with_code(1, false, Some(busy));
        assert_eq!(busy.end, AttemptResult::BrokeOff { advanced: false });
        let broke = with_code(5, false, report(10, 4));
        assert_eq!(broke.with.error.as_deref(), Some("the path is gone"));
        assert_eq!((broke.with.travelled, broke.with.exit_code), (6, Some(5)));
        // A short copy reports no progress before its end.
        let short = CopyReport {
            ok: true,
            bytes: 7,
            files: 1,
            seconds: 0.1,
            goodput_bps: 560.0,
            ..CopyReport::default()
        };
        let short = with_code(0, false, Some(short));
        let last: Progress = serde_json::from_str(&short.with.progress.unwrap()).unwrap();
        assert_eq!(
            (last.bytes, last.bytes_found, last.walk_complete, last.files),
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
        assert_eq!(report.report.bytes, 9);
        assert_eq!(report.text, "{\"event\":\"report\",\"bytes\":9}");
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
