//! The numbers of experiment and activity.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Numbers that the registry may assign to experiments and activities. Together they fit the 16
/// bits of a flow's identifier.
const EXPERIMENTS: RangeInclusive<u16> = 1..=1023;
const ACTIVITIES: RangeInclusive<u16> = 1..=63;

/// Experiment and activity of flows, by their numbers in the registry of SciTags. Text: `16:2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowTag {
    /// Number of the experiment.
    pub experiment: u16,
    /// Number of the activity.
    pub activity: u16,
}

impl fmt::Display for FlowTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.experiment, self.activity)
    }
}

impl FromStr for FlowTag {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let tag = text.split_once(':').and_then(|(experiment, activity)| {
            Some(Self {
                experiment: experiment.parse().ok()?,
                activity: activity.parse().ok()?,
            })
        });
        let is_valid = |tag: &Self| {
            EXPERIMENTS.contains(&tag.experiment) && ACTIVITIES.contains(&tag.activity)
        };
        tag.filter(is_valid).ok_or_else(|| {
            "write EXPERIMENT:ACTIVITY, two numbers of the SciTags registry (1 to 1023, 1 to 63)"
                .to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_two_numbers_of_the_registry() {
        let tag: FlowTag = "16:2".parse().unwrap();
        assert_eq!((tag.experiment, tag.activity), (16, 2));
        assert_eq!(tag.to_string(), "16:2");
        for bad in [
            "", "16", "0:1", "1:0", "1024:1", "1:64", "a:b", "1:2:3", "-1:1",
        ] {
            assert!(bad.parse::<FlowTag>().is_err(), "{bad}");
        }
    }
}
