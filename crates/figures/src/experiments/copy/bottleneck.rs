//! Bytes that the narrowest link of a path carries during a copy.

use std::path::Path;

use anyhow::{Context, Result};
use quantities::Rate;

/// Returns the payload of a full segment relative to its packet, by the link's MTU: TCP with
/// timestamps over IPv4.
pub const fn payload_share(mtu: u32) -> f64 {
    (mtu as f64 - 52.0) / mtu as f64
}

/// Link whose rate changes: times in seconds, and rates in bit/s from then on.
#[derive(Clone, Debug, PartialEq)]
pub struct Changing {
    steps: Vec<(f64, f64)>,
}

impl Changing {
    /// Reads a trace of `wanbed` (`at, rate, delay, loss`).
    ///
    /// # Errors
    /// It cannot be read, or a line has no time in seconds or no rate.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("{} is no trace of rates", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let lines = text.lines().map(str::trim);
        let data = lines.filter(|line| line.starts_with(|first: char| first.is_ascii_digit()));
        let step = |line: &str| -> Result<(f64, f64)> {
            let mut fields = line.split(',').map(str::trim);
            let at = fields
                .next()
                .and_then(|at| at.strip_suffix(" s"))
                .context("no time")?;
            let rate = Rate::with_unit(fields.next().context("no rate")?)?;
            Ok((at.parse()?, rate.bits_per_second()))
        };
        let steps = data
            .map(|line| step(line).with_context(|| line.to_owned()))
            .collect::<Result<Vec<_>>>()?;
        Ok(Self { steps })
    }

    /// Returns the mean rate from `from` to `until` seconds, in bit/s. The last step lasts forever.
    pub fn mean(&self, from: f64, until: f64) -> f64 {
        let ends = self
            .steps
            .iter()
            .skip(1)
            .map(|step| step.0)
            .chain([f64::INFINITY]);
        let carried =
            |((at, rate), end): (&(f64, f64), f64)| rate * (end.min(until) - at.max(from)).max(0.0);
        self.steps.iter().zip(ends).map(carried).sum::<f64>() / (until - from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_weighs_each_rate_by_its_time() {
        let text =
            "# a comment\nat, rate, delay, loss\n0 s, 10 Mbit/s, 60 ms,\n20 s, 40 Mbit/s, 60 ms,\n";
        let trace = Changing::parse(text).unwrap();
        assert_eq!(trace.mean(0.0, 20.0), 10e6);
        assert_eq!(trace.mean(15.0, 25.0), 25e6);
        assert_eq!(trace.mean(30.0, 50.0), 40e6);
        assert!(Changing::parse("0 s, fast,,\n").is_err());
    }

    #[test]
    fn the_scenarios_trace_has_the_statistics_that_it_states() {
        let scenarios = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
        let trace = Changing::read(&scenarios.join("drs-trace.csv")).unwrap();
        let mean = trace.mean(0.0, 3600.0) / 1e6;
        assert!((mean - 17.2).abs() < 0.1, "{mean}");
    }
}
