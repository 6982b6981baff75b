//! Distance between two points, and the time of light along it.

use std::time::Duration;

use quantities::Time;

use crate::model::{Latency, LatencySource, Position};

/// Mean radius of the Earth in metres (IUGG).
const EARTH_RADIUS: f64 = 6_371_008.8;
/// Speed of light in a vacuum, in m/s.
const SPEED_OF_LIGHT: f64 = 299_792_458.0;
/// Speed of light in glass fibre, in m/s: 0.66 of that in a vacuum.
pub const LIGHT_IN_FIBRE: f64 = 0.66 * SPEED_OF_LIGHT;

/// Returns the length of the great circle between two points of a sphere in metres, by the
/// haversine formula (Sinnott, "Virtues of the Haversine", 1984). Because the Earth is flattened,
/// the error is up to 0.6 %.
#[must_use]
pub fn great_circle(a: Position, b: Position) -> f64 {
    let half_sine_squared = |difference: f64| (difference.to_radians() / 2.0).sin().powi(2);
    let haversine = half_sine_squared(b.latitude - a.latitude)
        + a.latitude.to_radians().cos()
            * b.latitude.to_radians().cos()
            * half_sine_squared(b.longitude - a.longitude);
    // For antipodal points, rounding may yield slightly more than 1.
    2.0 * EARTH_RADIUS * haversine.clamp(0.0, 1.0).sqrt().asin()
}

/// Returns the one-way time of light in a fibre along the great circle.
pub fn estimate_latency(a: Position, b: Position) -> Latency {
    let one_way: Duration = Time::from_seconds(great_circle(a, b) / LIGHT_IN_FIBRE).0;
    Latency {
        one_way,
        source: LatencySource::Estimated,
    }
}
