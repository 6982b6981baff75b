//! A trace of changes: a link's rate, delay and loss at moments after the start.
//!
//! The file is comma-separated, with a header first. `#` begins a comment; an empty cell leaves the
//! value as it was:
//!
//! ```text
//! at, rate, delay, loss
//! 0 s, 17.2 Mbit/s, 78.5 ms,
//! 20 s, 9.1 Mbit/s,,
//! ```

use std::path::Path;

use super::Located;
use super::fields::ScenarioField;
use super::loss::independent;
use super::quantity;
use crate::error::{Error, Result, ScenarioError};
use crate::spec::{BitRate, Trace, TraceStep};

const COLUMNS: [&str; 4] = ["at", "rate", "delay", "loss"];
const MAX_STEPS: usize = 1_000_000;
const MAX_FILE: u64 = 256 << 20;

/// Reads `trace = "file.csv"` or `{ file = "file.csv", repeat_after = "3600 s" }`.
pub(super) fn trace(field: &ScenarioField, directory: &Path) -> Result<Trace> {
    let (file, repeat_after) = if field.is_table() {
        let mut fields = field.fields()?;
        let file = fields.required("file")?;
        let repeat = fields.optional("repeat_after");
        fields.finish()?;
        (file, repeat)
    } else {
        (field.clone(), None)
    };
    let path = directory.join(file.text()?);
    let failed = |source| Error::Read {
        path: path.clone(),
        source,
    };
    if std::fs::metadata(&path).map_err(failed)?.len() > MAX_FILE {
        return Err(file.wrong("the trace file is larger than 256 MB").into());
    }
    let steps = parse(
        &path.display().to_string(),
        &std::fs::read_to_string(&path).map_err(failed)?,
    )?;
    let repeat_after = match repeat_after {
        None => None,
        Some(field) => {
            let period = field.quantity(quantity::duration)?;
            if steps.last().is_some_and(|last| last.at >= period) {
                return Err(field.wrong("the trace has steps later than this").into());
            }
            Some(period)
        }
    };
    Ok(Trace {
        steps,
        repeat_after,
    })
}

fn parse(file: &str, text: &str) -> Located<Vec<TraceStep>> {
    let mut steps: Vec<TraceStep> = Vec::new();
    let mut header = false;
    for (number, line) in text.lines().enumerate() {
        let wrong = |column: &str, problem: String| ScenarioError {
            place: format!("{file}:{}", number + 1),
            field: column.to_owned(),
            problem,
        };
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        if !header {
            if cells != COLUMNS {
                return Err(wrong(
                    "",
                    format!("the first line names the columns: {}", COLUMNS.join(", ")),
                ));
            }
            header = true;
            continue;
        }
        let [at, rate, delay, loss] = cells[..] else {
            return Err(wrong(
                "",
                format!(
                    "has {} cells, should have 4: {}",
                    cells.len(),
                    COLUMNS.join(", ")
                ),
            ));
        };
        let at = quantity::duration(at).map_err(|problem| wrong("at", problem))?;
        if steps.last().is_some_and(|last| last.at >= at) {
            return Err(wrong("at", "is not later than the line before".to_owned()));
        }
        let given = |text: &str| !text.is_empty();
        let rate = Some(rate)
            .filter(|text| given(text))
            .map(quantity::bit_rate)
            .transpose()
            .map_err(|problem| wrong("rate", problem))?;
        steps.push(TraceStep {
            at,
            rate: match rate {
                Some(None) => {
                    return Err(wrong("rate", "a trace step has a rate in bit/s".to_owned()));
                }
                Some(rate) => rate.map(BitRate),
                None => None,
            },
            delay: Some(delay)
                .filter(|text| given(text))
                .map(quantity::duration)
                .transpose()
                .map_err(|problem| wrong("delay", problem))?,
            loss: Some(loss)
                .filter(|text| given(text))
                .map(quantity::probability)
                .transpose()
                .map_err(|problem| wrong("loss", problem))?
                .map(independent),
        });
        if steps.len() > MAX_STEPS {
            return Err(wrong("", format!("more than {MAX_STEPS} steps")));
        }
    }
    if steps.is_empty() {
        return Err(ScenarioError {
            place: format!("{file}:1"),
            field: String::new(),
            problem: "the trace has no steps".to_owned(),
        });
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn empty_cells_leave_values_alone() {
        let steps = parse(
            "t.csv",
            "# made up\nat, rate, delay, loss\n0 s, 17.2 Mbit/s, 78.5 ms,\n20 s,,,1% # bad patch\n",
        )
        .unwrap();
        assert_eq!(steps.len(), 2);
        assert_eq!(steps[0].rate, Some(BitRate(17_200_000)));
        assert_eq!(
            (steps[1].at, steps[1].rate, steps[1].delay),
            (Duration::from_secs(20), None, None)
        );
        assert!(steps[1].loss.is_some());
    }

    #[test]
    fn mistakes_name_their_line_and_column() {
        let cases = [
            ("", "t.csv:1: the trace has no steps"),
            (
                "rate\n",
                "t.csv:1: the first line names the columns: at, rate, delay, loss",
            ),
            (
                "at,rate,delay,loss\n0 s,,\n",
                "t.csv:2: has 3 cells, should have 4: at, rate, delay, loss",
            ),
            (
                "at,rate,delay,loss\n1 s,,,\n1 s,,,\n",
                "t.csv:3: at: is not later than the line before",
            ),
            (
                "at,rate,delay,loss\n1 s,unlimited,,\n",
                "t.csv:2: rate: a trace step has a rate in bit/s",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(parse("t.csv", text).unwrap_err().to_string(), expected);
        }
    }
}
