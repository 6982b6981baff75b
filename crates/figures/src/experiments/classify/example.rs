//! Small traces for the replay test of `drs`.

use super::truth::Case;
use super::{flow, matrix, read, trace_of};
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Sampling factor: one sample per interval is the minimum of the estimator.
const EVERY: usize = 5;
/// Length of the steady part that is kept. Everything before it is kept, too, because the estimator
/// has a memory.
const STEADY: Duration = Duration::from_millis(1000);

/// Writes both ends' traces of a flow as `LIMIT_CLASS-CONGESTION_END.jsonl`, where the limit is
/// what that end can see of the class.
///
/// # Errors
/// A trace cannot be read or written.
pub fn write(to: &Path, traces: &Path, case: &Case) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    let ends = [
        ("sender", case.class),
        ("receiver", matrix::seen_by_receiver(case.class)),
    ];
    for (end, limit) in ends {
        let until = case.steady.end.min(case.steady.start + STEADY);
        let kept: Vec<_> = read(&trace_of(traces, end))?
            .into_iter()
            .take_while(|sample| sample.at <= until)
            .step_by(EVERY)
            .collect();
        let name = format!("{limit}_{}-{}_{end}.jsonl", case.class, case.congestion);
        flow::keep(&to.join(name), &kept)?;
    }
    Ok(())
}
