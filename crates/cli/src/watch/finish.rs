//! The end of watching a copy.

use super::CopyWatch;
use crate::report::Report;

impl CopyWatch {
    /// Ends with the report.
    pub fn finish(&self, report: &Report) {
        self.bar.finish_and_clear();
        match self.show.json {
            true => self.write(report, true),
            false => report.print(self.show.quiet, self.show.explain),
        }
    }
}
