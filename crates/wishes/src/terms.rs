//! Terms of a connection's reservations: its own wish, or else the default of a rule.

use std::time::Duration;

/// Bytes that a connection must have carried before its stated rate is reserved. Control
/// connections carry less, and the direction of the data is known from then on.
pub const MIN_STATED_BYTES: u64 = 256 * 1024;
/// Bytes that a connection must have carried before the default of a rule is reserved for it.
pub const DEFAULT_LONG_BYTES: u64 = 64 * 1024 * 1024;
/// Duration of a circuit whose duration nobody stated.
pub const DEFAULT_DURATION: Duration = Duration::from_secs(600);
/// Maximum duration of one circuit. A controller may permit less.
pub const MAX_DURATION: Duration = Duration::from_secs(24 * 3600);

/// Direction of a connection's bytes, as seen by the end that dialled it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowDirection {
    /// To the far end.
    Send,
    /// From the far end.
    Receive,
}

/// Wish that a program stated for a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StatedWish {
    /// Rate, in bit/s.
    pub rate: Option<u64>,
    /// Duration, in seconds.
    pub duration: Option<u64>,
    /// Bytes that the connection will carry.
    pub size: Option<u64>,
}

/// Reservations of a rule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReserveRule {
    /// Stated rates are reserved.
    #[default]
    Stated,
    /// Nothing is reserved.
    Never,
    /// Stated rates are reserved, and this for connections that state none.
    Default(ReserveDefault),
}

/// Reservation for connections that state nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReserveDefault {
    /// Rate, in bit/s; at least 1.
    pub rate: u64,
    /// Duration.
    pub duration: Duration,
    /// Direction to reserve; that with more bytes, if `None`.
    pub direction: Option<FlowDirection>,
    /// Bytes that the connection must have carried.
    pub after: u64,
    /// Rate that the connection must have, in bit/s; any if `None`.
    pub above: Option<u64>,
}

/// Reservation for one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReserveTerms {
    /// Reserved rate, and the condition for it.
    pub reserve: ReserveDefault,
    /// Bytes that the connection will carry, if the program stated it.
    pub size: Option<u64>,
    /// True if the program stated the rate itself.
    pub is_stated: bool,
}

/// Returns what a connection may reserve. `None` means nothing.
#[must_use]
pub fn terms(stated: StatedWish, rule: ReserveRule) -> Option<ReserveTerms> {
    let default = match rule {
        ReserveRule::Never => return None,
        ReserveRule::Stated => None,
        ReserveRule::Default(default) => Some(default),
    };
    let size = stated.size.filter(|size| *size > 0);
    let Some(rate) = stated.rate.filter(|rate| *rate > 0) else {
        return default.map(|reserve| ReserveTerms {
            reserve,
            size,
            is_stated: false,
        });
    };
    let duration = stated.duration.map(Duration::from_secs);
    let duration = duration.or(default.map(|default| default.duration));
    let reserve = ReserveDefault {
        rate,
        duration: duration.unwrap_or(DEFAULT_DURATION).min(MAX_DURATION),
        direction: default.and_then(|default| default.direction),
        after: MIN_STATED_BYTES,
        above: None,
    };
    Some(ReserveTerms {
        reserve,
        size,
        is_stated: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: ReserveDefault = ReserveDefault {
        rate: 7,
        duration: Duration::from_secs(60),
        direction: Some(FlowDirection::Receive),
        after: DEFAULT_LONG_BYTES,
        above: Some(5),
    };

    #[test]
    fn a_stated_rate_overrides_the_default() {
        let stated = StatedWish {
            rate: Some(9),
            duration: Some(30),
            size: Some(1),
        };
        let found = terms(stated, ReserveRule::Default(DEFAULT)).unwrap();
        assert!(found.is_stated);
        assert_eq!((found.reserve.rate, found.size), (9, Some(1)));
        assert_eq!(found.reserve.duration, Duration::from_secs(30));
        assert_eq!(found.reserve.direction, Some(FlowDirection::Receive));
        assert_eq!(
            (found.reserve.after, found.reserve.above),
            (MIN_STATED_BYTES, None)
        );
        let found = terms(StatedWish::default(), ReserveRule::Default(DEFAULT)).unwrap();
        assert_eq!((found.reserve, found.is_stated), (DEFAULT, false));
    }

    #[test]
    fn nothing_is_reserved_without_a_rate_or_against_a_rule() {
        let stated = StatedWish {
            rate: Some(9),
            ..StatedWish::default()
        };
        assert_eq!(terms(stated, ReserveRule::Never), None);
        assert_eq!(terms(StatedWish::default(), ReserveRule::Stated), None);
        let found = terms(stated, ReserveRule::Stated).unwrap();
        assert_eq!(found.reserve.duration, DEFAULT_DURATION);
        let zero = StatedWish {
            rate: Some(0),
            ..StatedWish::default()
        };
        assert_eq!(terms(zero, ReserveRule::Stated), None);
    }
}
