//! The sender of reports.

use std::time::Duration;

use data_encoding::HEXLOWER;

use super::CopyEvent;
use crate::progress::{Observer, TransferEvent};

/// Observer that passes events on as reports. Completed entries are only reported to a side that
/// wants them, which must keep up.
pub struct EventReporter<S> {
    /// Receives each report.
    pub send: S,
    /// True if completed entries are reported.
    pub report_done: bool,
    /// True if the receiving side knows events about waiting.
    pub report_waiting: bool,
}

impl<S: Fn(CopyEvent) + Send + Sync + 'static> Observer for EventReporter<S> {
    fn event(&self, event: TransferEvent) {
        if let Some(event) = self.report(event) {
            (self.send)(event);
        }
    }
}

impl<S> EventReporter<S> {
    fn report(&self, event: TransferEvent) -> Option<CopyEvent> {
        Some(match event {
            TransferEvent::StreamOpened { stream, .. } => CopyEvent::StreamOpened { stream },
            TransferEvent::StreamLost {
                is_silent: true, ..
            } => return None,
            TransferEvent::Waiting { .. }
            | TransferEvent::ArrivalResumed { .. }
            | TransferEvent::CopyReplaced { .. }
                if !self.report_waiting =>
            {
                return None;
            }
            TransferEvent::Waiting { silence, patience } => CopyEvent::Waiting {
                silence_ms: millis(silence),
                patience_ms: millis(patience),
            },
            TransferEvent::ArrivalResumed { after } => CopyEvent::Back {
                after_ms: millis(after),
            },
            TransferEvent::CopyReplaced { reason } => CopyEvent::BegunAgain { reason },
            TransferEvent::StreamLost { stream, reason, .. } => {
                CopyEvent::StreamLost { stream, reason }
            }
            TransferEvent::Resumed { path, bytes, size } => {
                CopyEvent::Resumed { path, bytes, size }
            }
            TransferEvent::Done {
                path,
                bytes,
                hash,
                same,
            } if self.report_done => CopyEvent::Done {
                path,
                bytes,
                blake3: hash.map(|hash| HEXLOWER.encode(&hash)),
                same,
            },
            // Only the side that started the copy chooses routes.
            TransferEvent::Done { .. } | TransferEvent::RouteJudged { .. } => return None,
            TransferEvent::Failed { path, failure } => CopyEvent::Failed {
                path,
                kind: failure.kind,
                detail: failure.detail,
            },
        })
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
