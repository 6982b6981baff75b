//! The Internet2 Land Speed Record: the rules of the contest of 2003, and its unit.
//!
//! An attempt must transfer at least 100 megabytes over at least 100 kilometres of terrestrial
//! distance, with at least two router hops in each direction. It is rated in bit-metres per second.
//! The rules about hardware on sale and production networks are for people to judge.

use std::fmt;
use std::net::SocketAddr;

use quantities::{ByteCount, Rate};
use serde::Serialize;

use crate::client::StreamConnection;

/// Minimum number of bytes that must be transferred.
pub const MIN_BYTES: u64 = 100_000_000;
/// Minimum terrestrial distance, in kilometres.
pub const MIN_KM: f64 = 100.0;
/// Minimum number of router hops in each direction.
pub const MIN_HOPS: u32 = 2;

/// Course of an attempt, as stated by the person who makes it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Course {
    /// Terrestrial distance, in kilometres.
    pub km: f64,
    /// Number of router hops in each direction.
    pub hops: u32,
}

/// One attempt, judged by the rules.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RecordAttempt {
    /// Rate times distance, in terabit-metres per second.
    pub terabit_metres_per_second: f64,
    /// True if it keeps the rules that can be checked.
    pub valid: bool,
    /// Rules that it breaks.
    pub broken: Vec<BrokenRule>,
    /// Class in which it counts; `None` if `unclassified` has a reason.
    pub class: Option<RecordClass>,
    /// Reason why it counts in no class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unclassified: Option<Unclassified>,
}

/// Class of the contest: records are kept for each separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RecordClass {
    /// Version of IP that carried the streams.
    pub ip: IpVersion,
    /// Number of TCP streams.
    pub streams: StreamCount,
}

/// Version of the Internet Protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum IpVersion {
    /// Version 4, also where a socket shows it as an IPv4-mapped IPv6 address.
    Ipv4,
    /// Version 6.
    Ipv6,
}

/// Number of TCP streams, as far as the contest distinguishes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StreamCount {
    /// One.
    Single,
    /// Two or more.
    Multiple,
}

/// Reason why an attempt counts in no class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unclassified {
    /// The route has depots, so that no TCP stream reaches from end to end. Measure over the direct
    /// route.
    Relayed,
    /// A stream is not carried by TCP. Measure over TCP.
    NotTcp,
    /// Some streams use IPv4 and some IPv6. Name the server by its address.
    MixedIpVersions,
}

impl fmt::Display for RecordClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ip = match self.ip {
            IpVersion::Ipv4 => "IPv4",
            IpVersion::Ipv6 => "IPv6",
        };
        match self.streams {
            StreamCount::Single => write!(f, "{ip} single stream"),
            StreamCount::Multiple => write!(f, "{ip} multiple streams"),
        }
    }
}

impl fmt::Display for Unclassified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Relayed => "no TCP stream reaches from end to end of a route with depots",
            Self::NotTcp => "not every stream is carried by TCP",
            Self::MixedIpVersions => "some streams use IPv4 and some IPv6",
        })
    }
}

impl RecordClass {
    /// Returns the class of a measurement whose `streams` in the judged direction were carried by
    /// `connections`. `relayed` says that the route has depots.
    ///
    /// # Errors
    /// [`Unclassified`]: the reason why it has no class.
    pub fn classify(
        connections: &[StreamConnection],
        streams: u16,
        relayed: bool,
    ) -> Result<Self, Unclassified> {
        if relayed {
            return Err(Unclassified::Relayed);
        }
        let versions: Option<Vec<IpVersion>> = connections
            .iter()
            .map(|connection| {
                connection
                    .is_tcp
                    .then(|| connection.addresses.map(IpVersion::of))?
            })
            .collect();
        let streams = match streams {
            1 => StreamCount::Single,
            _ => StreamCount::Multiple,
        };
        match versions.as_deref() {
            None | Some([]) => Err(Unclassified::NotTcp),
            Some([ip, rest @ ..]) if rest.iter().all(|other| other == ip) => {
                Ok(Self { ip: *ip, streams })
            }
            Some(_) => Err(Unclassified::MixedIpVersions),
        }
    }
}

impl IpVersion {
    /// Returns the version that carries the packets between two addresses.
    fn of((_, remote): (SocketAddr, SocketAddr)) -> Self {
        match remote.ip().to_canonical().is_ipv4() {
            true => Self::Ipv4,
            false => Self::Ipv6,
        }
    }
}

/// A rule that an attempt breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BrokenRule {
    /// Fewer than [`MIN_BYTES`] were transferred.
    TooFewBytes,
    /// The distance is less than [`MIN_KM`].
    TooShort,
    /// There are fewer than [`MIN_HOPS`] router hops.
    TooFewHops,
}

impl fmt::Display for BrokenRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooFewBytes => "less than 100,000,000 bytes arrived",
            Self::TooShort => "the distance is under 100 km",
            Self::TooFewHops => "fewer than two router hops each way",
        })
    }
}

impl RecordAttempt {
    /// Judges an attempt in which `bytes` arrived at `rate` over `course`, in its class.
    #[must_use]
    pub fn judge(
        bytes: ByteCount,
        rate: Rate,
        course: Course,
        class: Result<RecordClass, Unclassified>,
    ) -> Self {
        let rules = [
            (bytes.0 >= MIN_BYTES, BrokenRule::TooFewBytes),
            (course.km >= MIN_KM, BrokenRule::TooShort),
            (course.hops >= MIN_HOPS, BrokenRule::TooFewHops),
        ];
        let broken: Vec<_> = rules
            .into_iter()
            .filter_map(|(kept, rule)| (!kept).then_some(rule))
            .collect();
        let metres = course.km * 1e3;
        Self {
            terabit_metres_per_second: rate.bits_per_second() * metres / 1e12,
            valid: broken.is_empty(),
            broken,
            class: class.ok(),
            unclassified: class.err(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(bytes: u64, bits_per_second: f64, km: f64, hops: u32) -> RecordAttempt {
        RecordAttempt::judge(
            ByteCount(bytes),
            Rate::nearest(bits_per_second),
            Course { km, hops },
            Err(Unclassified::Relayed),
        )
    }

    fn connection(remote: &str) -> StreamConnection {
        let remote = remote.parse().unwrap();
        StreamConnection {
            stream: 0,
            addresses: Some((remote, remote)),
            is_tcp: true,
            mss: 1448,
            buffers: (0, 0),
        }
    }

    #[test]
    fn class_is_the_ip_version_and_the_number_of_streams() {
        let class = |remotes: &[&str], streams| {
            let connections: Vec<_> = remotes.iter().map(|remote| connection(remote)).collect();
            let class = RecordClass::classify(&connections, streams, false);
            class.map(|class| class.to_string())
        };
        let (v4, v6) = ("192.0.2.1:7511", "[2001:db8::1]:7511");
        assert_eq!(class(&[v4], 1).unwrap(), "IPv4 single stream");
        assert_eq!(
            class(&["[::ffff:192.0.2.1]:1"], 1).unwrap(),
            "IPv4 single stream"
        );
        assert_eq!(class(&[v6, v6], 2).unwrap(), "IPv6 multiple streams");
        // With both directions measured, each direction has its own connections.
        assert_eq!(class(&[v6, v6], 1).unwrap(), "IPv6 single stream");
        assert_eq!(class(&[v4, v6], 2), Err(Unclassified::MixedIpVersions));
        assert_eq!(class(&[], 1), Err(Unclassified::NotTcp));
    }

    #[test]
    fn only_tcp_from_end_to_end_has_a_class() {
        let tcp = connection("192.0.2.1:7511");
        let quic = StreamConnection {
            is_tcp: false,
            ..tcp.clone()
        };
        let classify = RecordClass::classify;
        assert_eq!(classify(&[tcp], 1, true), Err(Unclassified::Relayed));
        assert_eq!(classify(&[quic], 1, false), Err(Unclassified::NotTcp));
        let attempt = judged(100_000_000, 1e9, 100.0, 2);
        let json = serde_json::to_value(attempt).unwrap();
        assert_eq!(json["class"], serde_json::Value::Null);
        assert_eq!(json["unclassified"], "relayed");
    }

    #[test]
    fn the_records_come_out_as_published() {
        // February 2003: 2.38 Gbit/s over 10,037 km.
        let record = judged(1_000_000_000_000, 2.38e9, 10_037.0, 4);
        assert_eq!(record.terabit_metres_per_second.round(), 23_888.0);
        assert!(record.valid);
        // November 2002: 10,136.15 over 10,978 km, at a rate printed as 0.93 Gbit/s (rounded up:
        // 0.9233 gives the figure).
        let former = judged(1_000_000_000, 0.923_314e9, 10_978.0, 4);
        assert!((former.terabit_metres_per_second - 10_136.15).abs() < 0.1);
    }

    #[test]
    fn each_rule_counts_at_its_bound() {
        assert!(judged(100_000_000, 1e6, 100.0, 2).valid);
        assert_eq!(
            judged(99_999_999, 1e6, 100.0, 2).broken,
            [BrokenRule::TooFewBytes]
        );
        assert_eq!(
            judged(100_000_000, 1e6, 99.9, 2).broken,
            [BrokenRule::TooShort]
        );
        assert_eq!(
            judged(100_000_000, 1e6, 100.0, 1).broken,
            [BrokenRule::TooFewHops]
        );
        assert_eq!(judged(0, 0.0, f64::NAN, 0).broken.len(), 3);
    }
}
