//! Verdicts on traces of real kernels. Each trace was recorded in a lab flow that was built to have
//! the limit in its file name (`longhaul-figures figures classify`, with
//! `LONGHAUL_FIGURES_EXAMPLES`). It runs from the flow's start to a second into its steady part,
//! with one sample every 100 ms.

#![allow(clippy::unwrap_used)] // a test that fails may panic, in its helpers too

use std::{
    fs::{self, File},
    io::BufReader,
    path::Path,
};

use drs::{Estimator, Limit, Side};

/// Returns a trace's verdicts.
fn verdicts(path: &Path, side: Side) -> std::io::Result<Vec<Limit>> {
    let samples = drs::read_trace(BufReader::new(File::open(path)?))?;
    let mut estimator = Estimator::new(side);
    Ok(samples
        .iter()
        .filter_map(|sample| Some(estimator.observe(sample)?.limit))
        .collect())
}

/// File names are `LIMIT_CLASS-CONGESTION_END.jsonl`: the limit that this end can see of the flow's
/// class.
#[test]
fn recorded_flows_get_the_verdict_that_they_were_built_for() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces");
    let mut seen = vec![];
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let mut words = name.split('_');
        let expected = words.next().unwrap();
        let side = match words.nth(1) {
            Some("receiver") => Side::Receiving,
            _ => Side::Sending,
        };
        let all = verdicts(&path, side).unwrap();
        // The last quarter, and at least two for short flows.
        let steady = (all.len() / 4).max(2);
        let verdicts = all
            .get(all.len().saturating_sub(steady)..)
            .unwrap_or_default();
        let right = verdicts
            .iter()
            .filter(|limit| limit.word() == expected)
            .count();
        assert!(verdicts.len() >= 2, "{name}: {verdicts:?}");
        assert!(20 * right >= 19 * verdicts.len(), "{name}: {verdicts:?}");
        seen.push(expected.to_owned());
    }
    for limit in Limit::ALL {
        assert!(
            seen.iter().any(|word| word == limit.word()),
            "no trace of {limit}"
        );
    }
}
