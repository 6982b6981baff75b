//! The end of watching a copy.

use serde_json::json;

use super::CopyWatch;
use crate::report::Report;

impl CopyWatch {
    /// Ends with the report.
    pub fn finish(&self, report: &Report) {
        self.bar.finish_and_clear();
        if self.show.json {
            let report = serde_json::to_value(report)
                .unwrap_or_else(|error| json!({ "event": "report", "error": error.to_string() }));
            self.write(&report, true);
        } else {
            report.print(self.show.quiet, self.show.explain);
        }
    }
}
