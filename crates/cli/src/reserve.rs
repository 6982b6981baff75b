//! `longhaul reserve`: asks the controller for bandwidth between two ends.

mod across;

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::{Args, ValueEnum};
use jiff::Zoned;
use longhaul_control_api::reservations::{
    Disjoint, MAX_DSCP, NamedPath, Pace, PacketFilter, Preference, Recurrence, ReservationRequest,
    RouteConstraints, SourcePortRange, Wish,
};
use longhaul_control_client::controller::ReservationAnswer;
use longhaul_output::message;
use longhaul_proto::SessionId;
use longhaul_proto::text::printable;
use longhaul_provisioning::streams::Prefix;
use quantities::{ByteCount, Rate, Time};

use crate::agent_client::run_in_runtime;
use crate::exit::Exit;
use crate::quantity::{positive_bytes, positive_rate, positive_time};
use crate::reservations::show;
use crate::{answer, controller, moment};

/// Reserve bandwidth between two ends: a rate for some time, or a volume by a deadline.
///
/// The controller is asked (longhaul controller use URL). It answers with the paths and their
/// rates, or says which links are full and until when, and what it offers instead. Times are those
/// of this machine: 18:00, 'Fri 18:00', 'tomorrow 9:00', '2026-11-27 18:00', 2026-11-27T18:00:00Z,
/// +2h, now.
#[derive(Args)]
pub struct ReserveCommand {
    /// The sending end: a host, a depot or a site of the map, or DOMAIN:END in another domain.
    #[arg(value_name = "FROM")]
    source: String,
    /// The receiving end.
    #[arg(value_name = "TO")]
    destination: String,
    /// Constant rate for the whole time: 5G, 800 Mbit/s.
    #[arg(
        long,
        value_name = "RATE",
        value_parser = positive_rate,
        required_unless_present_any = ["bytes", "path"]
    )]
    rate: Option<Rate>,
    /// Volume to move in that time: 10T, 500 GiB.
    #[arg(long, value_name = "SIZE", value_parser = positive_bytes, conflicts_with = "rate")]
    bytes: Option<ByteCount>,
    /// Maximum rate, with --bytes.
    #[arg(long, value_name = "RATE", value_parser = positive_rate, requires = "bytes")]
    at_most: Option<Rate>,
    /// With --bytes: prefer one constant rate; otherwise finish as early as possible.
    #[arg(long, requires = "bytes")]
    even: bool,
    /// Start [default: now].
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// End of the time, or deadline.
    #[arg(
        long,
        visible_alias = "by",
        value_name = "TIME",
        required_unless_present = "for_time"
    )]
    until: Option<String>,
    /// Duration instead of --until: 2h, 90 min.
    #[arg(
        long = "for",
        value_name = "TIME",
        value_parser = positive_time,
        conflicts_with = "until"
    )]
    for_time: Option<Time>,
    /// Maximum number of simultaneous paths [default: 1].
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=8),
    )]
    paths: Option<u32>,
    /// Paths share no link; with =sites, no site between the ends either.
    #[arg(
        long,
        value_name = "WHAT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "links",
    )]
    disjoint: Option<DisjointElements>,
    /// Path to prefer if one is enough.
    #[arg(long, value_name = "WHAT", default_value = "hops")]
    prefer: PathPreference,
    /// Avoid this site. Repeatable.
    #[arg(long, value_name = "SITE")]
    avoid_site: Vec<String>,
    /// Avoid this link. Repeatable.
    #[arg(long, value_name = "LINK")]
    avoid_link: Vec<String>,
    /// Each path passes this site, or the site of this host or depot. Repeatable, in order.
    #[arg(long, value_name = "NODE")]
    via: Vec<String>,
    /// Use only these links, in either direction.
    #[arg(long, value_name = "LINK", value_delimiter = ',')]
    only_links: Vec<String>,
    /// Maximum number of links of each path.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_hops: Option<u32>,
    /// Maximum one-way latency of each path, by the map: 20 ms.
    #[arg(long, value_name = "TIME", value_parser = positive_time)]
    max_latency: Option<Time>,
    /// Begin the paths at this site instead of that of FROM; the role must allow it.
    #[arg(long, value_name = "NODE")]
    ingress: Option<String>,
    /// End the paths at this site instead of that of TO; the role must allow it.
    #[arg(long, value_name = "NODE")]
    egress: Option<String>,
    /// This very path at exactly this rate, instead of --rate: west,north,east=2G. Repeatable, for
    /// several paths at once.
    #[arg(long, value_name = "NODES=RATE", value_parser = named_path)]
    path: Vec<NamedPath>,
    /// Only for TCP packets with these source ports; several paths share them evenly.
    #[arg(long, value_name = "LOW-HIGH", value_parser = port_range)]
    ports: Option<SourcePortRange>,
    /// Only for packets with this DSCP, 0 to 63.
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u8).range(..=i64::from(MAX_DSCP)),
    )]
    dscp: Option<u8>,
    /// Repeat it by a recurrence rule (RFC 5545): FREQ=WEEKLY;COUNT=4. All are granted, or none.
    #[arg(long, value_name = "RRULE")]
    every: Option<String>,
    /// Only hold it: longhaul reservations ID commit takes it, or a minute later it is returned.
    #[arg(long)]
    hold: bool,
    /// Have its paths set up in its time; otherwise longhaul reservations ID provision does that.
    #[arg(long)]
    provision: bool,
    /// Only for streams with source ports of its own, which the answer names: other streams between
    /// the ends do not use it. Reservations with several paths always work like this.
    #[arg(long)]
    pin: bool,
    /// Source address or prefix of its streams, if the map knows several.
    #[arg(long, value_name = "ADDRESS")]
    from_address: Option<Prefix>,
    /// Destination address or prefix of its streams.
    #[arg(long, value_name = "ADDRESS")]
    to_address: Option<Prefix>,
    /// With an end in another domain: how the domains on the path are asked [default: a tree if
    /// this domain has the keys of all of them, otherwise a chain].
    #[arg(long, value_name = "WHAT")]
    shape: Option<across::RequestShape>,
    /// With an end in another domain: show the segment of each domain on the path.
    #[arg(long)]
    show: bool,
    /// Purpose of the reservation.
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// The key to authenticate with [default: the default key, made when first needed].
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Print one JSON object: the reservation, or the refusal.
    #[arg(long)]
    json: bool,
}

/// Parses a path with its rate.
fn named_path(text: &str) -> Result<NamedPath, String> {
    let form = || "write its sites in order and its rate, as in west,north,east=2G".to_owned();
    let (sites, rate) = text.rsplit_once('=').ok_or_else(form)?;
    let sites: Vec<String> = sites.split(',').map(str::to_owned).collect();
    if sites.len() < 2 || sites.iter().any(String::is_empty) {
        return Err(form());
    }
    let rate = positive_rate(rate)?;
    Ok(NamedPath {
        sites,
        rate_bps: rate.bits_per_second() as u64,
    })
}

/// Parses a range of ports.
fn port_range(text: &str) -> Result<SourcePortRange, String> {
    let ports = text.split_once('-').and_then(|(first, last)| {
        Some(SourcePortRange {
            first: first.parse().ok().filter(|port| *port > 0)?,
            last: last.parse().ok()?,
        })
    });
    ports
        .filter(|ports| ports.first <= ports.last)
        .ok_or_else(|| "write the first and the last port, as in 50000-50099".to_owned())
}

/// Kinds of elements that paths must not share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DisjointElements {
    Links,
    Sites,
}

/// Criteria for the better path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PathPreference {
    Hops,
    Latency,
    Room,
}

impl ReserveCommand {
    /// Runs the command.
    pub fn run(self) -> Result<Exit> {
        let now = Zoned::now();
        let request = self.request(&now)?;
        let controller = controller::configured_controller(self.identity.as_deref())?;
        let key = SessionId::random()
            .map_err(|error| anyhow!("cannot make an idempotency key: {error}"))?;
        if across::leads_across(&request) {
            return self.reserve_across(&request, controller, &key.to_string(), &now);
        }
        if self.shape.is_some() || self.show {
            return Err(anyhow!(
                "--shape, --show: both ends are of this domain: leave them out, or name DOMAIN:END"
            ));
        }
        let granted =
            run_in_runtime(async { Ok(controller.reserve(&request, &key.to_string()).await?) })?;
        match granted {
            ReservationAnswer::Reserved(reserved) if self.json => {
                answer::write_line(serde_json::to_string(&reserved)?);
                Ok(Exit::Success)
            }
            ReservationAnswer::Reserved(reserved) => {
                for reservation in &reserved.reservations {
                    answer::write_lines(show::details(reservation, &now).into_iter());
                }
                if self.hold
                    && let Some(first) = reserved.reservations.first()
                {
                    answer::write_line(format_args!(
                        "to commit it: longhaul reservations {} commit",
                        first.id
                    ));
                }
                Ok(Exit::Success)
            }
            ReservationAnswer::InsufficientBandwidth(refused) => {
                message!("longhaul: {}", printable(refused.detail.as_bytes()));
                if self.json {
                    answer::write_line(serde_json::to_string(&refused)?);
                } else {
                    answer::write_lines(show::refusal(&refused.refusal, &now).into_iter());
                }
                Ok(Exit::SomeFailed)
            }
        }
    }

    fn request(&self, now: &Zoned) -> Result<ReservationRequest> {
        let read = |option: &str, text: &str| {
            let moment = moment::read(text, now);
            moment.map_err(|why| anyhow!("{option} {}: {why}", printable(text.as_bytes())))
        };
        let begin = self
            .from
            .as_deref()
            .map(|text| read("--from", text))
            .transpose()?;
        let end = match (&self.until, self.for_time) {
            (Some(text), _) => read("--until", text)?,
            (None, Some(time)) => {
                let begin = begin.as_ref().unwrap_or(now);
                begin.checked_add(jiff::SignedDuration::try_from(time.0)?)?
            }
            (None, None) => return Err(anyhow!("give its end: --until or --for")),
        };
        if end <= *begin.as_ref().unwrap_or(now) {
            return Err(anyhow!(
                "--until: it ends before it begins: write a later time"
            ));
        }
        let milliseconds =
            |moment: &Zoned| moment::milliseconds(moment).map_err(anyhow::Error::msg);
        let bps = |rate: Rate| rate.bits_per_second() as u64;
        let by_path = self.path.iter().map(|path| path.rate_bps);
        let by_path = by_path.fold(0, u64::saturating_add);
        let wish = match (self.rate, self.bytes) {
            (None, None) if by_path > 0 => Wish::Rate { rate_bps: by_path },
            (Some(rate), _) => Wish::Rate {
                rate_bps: bps(rate),
            },
            (None, Some(bytes)) => Wish::Volume {
                bytes: bytes.0,
                at_most_bps: self.at_most.map(bps),
                pace: if self.even { Pace::Even } else { Pace::Early },
            },
            (None, None) => return Err(anyhow!("give its size: --rate or --bytes")),
        };
        // If the system does not say which zone it is in, its hours are those of UTC.
        let zone = now
            .time_zone()
            .iana_name()
            .filter(|name| *name != "Etc/Unknown");
        let recurrence = self.every.as_ref().map(|rule| Recurrence {
            rule: rule.clone(),
            time_zone: zone.map(str::to_owned),
        });
        let path_count = u32::try_from(self.path.len().max(1)).unwrap_or(u32::MAX);
        let request = ReservationRequest {
            from: self.source.clone(),
            to: self.destination.clone(),
            wish,
            start_ms: begin.as_ref().map(milliseconds).transpose()?,
            end_ms: milliseconds(&end)?,
            paths: self.paths.unwrap_or(path_count),
            disjoint: match self.disjoint {
                None => Disjoint::No,
                Some(DisjointElements::Links) => Disjoint::Links,
                Some(DisjointElements::Sites) => Disjoint::Sites,
            },
            preference: match self.prefer {
                PathPreference::Hops => Preference::FewestHops,
                PathPreference::Latency => Preference::LeastLatency,
                PathPreference::Room => Preference::MostRoom,
            },
            avoid_sites: self.avoid_site.clone(),
            avoid_links: self.avoid_link.clone(),
            constraints: RouteConstraints {
                via: self.via.clone(),
                only_links: self.only_links.clone(),
                max_hops: self.max_hops,
                max_latency_us: self.max_latency.map(microseconds),
                ingress: self.ingress.clone(),
                egress: self.egress.clone(),
                paths: self.path.clone(),
            },
            filter: PacketFilter {
                source_ports: self.ports,
                dscp: self.dscp,
            },
            recurrence,
            hold: self.hold,
            provision: self.provision,
            pin: self.pin,
            from_address: self.from_address.map(|address| address.to_string()),
            to_address: self.to_address.map(|address| address.to_string()),
            description: self.description.clone(),
            delegation: None,
        };
        request.check_options()?;
        Ok(request)
    }
}

fn microseconds(time: Time) -> u64 {
    u64::try_from(time.0.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
