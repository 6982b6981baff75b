//! Samples of a stream, and its recovery from a loss.

use serde::{Deserialize, Serialize};

/// A stream, sampled at intervals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CourseSamples {
    /// Samples in order of time.
    pub samples: Vec<Sample>,
    /// Segments retransmitted.
    pub retransmits: u64,
    /// Slow-start threshold that the sender remembered when the stream began, in segments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<u32>,
}

/// One interval: its end in seconds since the start of the stream, the rate in Mbit/s, the
/// congestion window at its end in segments, and the number of retransmissions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample(pub f64, pub f64, pub u32, pub u64);

/// Recovery of a stream from its only loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recovery {
    /// Time of the loss: the end of the interval with the retransmission, in seconds.
    pub lost_at: f64,
    /// Largest congestion window before it, in segments.
    pub before: u32,
    /// Least congestion window after it.
    pub least: u32,
    /// Seconds until the window was as large as before; `None` if the stream ended earlier.
    pub seconds: Option<f64>,
    /// Growth of the window from its least value to its last or full one, in segments a second.
    pub growth: f64,
}

impl CourseSamples {
    /// Returns the recovery from the first loss; `None` without a loss.
    pub fn recovery(&self) -> Option<Recovery> {
        let at = self.samples.iter().position(|sample| sample.3 > 0)?;
        let (earlier, later) = self.samples.split_at(at);
        let lost_at = later.first()?.0;
        let before = earlier.iter().map(|sample| sample.2).max()?;
        // Linux reduces the window by and by, for one round trip.
        let (low, least) = later
            .iter()
            .enumerate()
            .min_by_key(|(_, sample)| sample.2)?;
        let rising = later.get(low..)?;
        let full = rising.iter().find(|sample| sample.2 >= before);
        let end = full.or(rising.last())?;
        let (time, segments) = (end.0 - least.0, f64::from(end.2) - f64::from(least.2));
        Some(Recovery {
            lost_at,
            before,
            least: least.2,
            seconds: full.map(|sample| sample.0 - lost_at),
            growth: if time > 0.0 { segments / time } else { 0.0 },
        })
    }

    /// Returns the time at which the window was first at least `segments`, in seconds.
    pub fn reached(&self, segments: u32) -> Option<f64> {
        let sample = self.samples.iter().find(|sample| sample.2 >= segments)?;
        Some(sample.0)
    }

    /// Returns the longest time between two samples, in seconds.
    pub fn longest_gap(&self) -> f64 {
        let ends = || self.samples.iter().map(|sample| sample.0);
        let starts = std::iter::once(0.0).chain(ends());
        ends()
            .zip(starts)
            .map(|(end, start)| end - start)
            .fold(0.0, f64::max)
    }

    /// Returns the largest congestion window, in segments.
    pub fn largest_window(&self) -> u32 {
        self.samples
            .iter()
            .map(|sample| sample.2)
            .max()
            .unwrap_or(0)
    }

    /// Returns the outcome in a few words.
    pub fn words(&self) -> String {
        let recovered = match self.recovery() {
            None => "no loss".to_owned(),
            Some(recovery) => match recovery.seconds {
                Some(seconds) => format!("recovered after {seconds:.1} s"),
                None => format!("grows by {:.2} segments a second", recovery.growth),
            },
        };
        format!(
            "window up to {} segments, {} retransmissions, {recovered}",
            self.largest_window(),
            self.retransmits
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(windows: &[u32], lost: usize) -> CourseSamples {
        let sample = |(at, &window)| Sample(at as f64, 1.0, window, u64::from(at == lost));
        CourseSamples {
            samples: windows.iter().enumerate().map(sample).collect(),
            retransmits: 1,
            threshold: None,
        }
    }

    #[test]
    fn recovery_lasts_until_the_window_is_as_before() {
        let found = course(&[10, 100, 100, 80, 50, 60, 70, 100, 100], 3)
            .recovery()
            .unwrap();
        let expected = Recovery {
            lost_at: 3.0,
            before: 100,
            least: 50,
            seconds: Some(4.0),
            growth: 50.0 / 3.0,
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn unfinished_recovery_has_only_its_growth() {
        let found = course(&[100, 100, 50, 60], 2).recovery().unwrap();
        assert_eq!((found.seconds, found.growth), (None, 10.0));
        assert_eq!(course(&[1, 2], 9).recovery(), None);
        assert_eq!(course(&[1, 200], 9).reached(100), Some(1.0));
        assert_eq!(course(&[1, 2, 3], 9).longest_gap(), 1.0);
    }
}
