//! `longhaul reserve`: asks the controller for bandwidth between two ends.

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::{Args, ValueEnum};
use jiff::Zoned;
use longhaul_control_api::reservations::{
    Disjoint, Pace, Preference, Recurrence, ReservationRequest, Wish,
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
    /// The sending end: a host, a depot or a site of the map.
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
        required_unless_present = "bytes"
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
    /// Maximum number of simultaneous paths.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=8),
    )]
    paths: u32,
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
        let wish = match (self.rate, self.bytes) {
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
        Ok(ReservationRequest {
            from: self.source.clone(),
            to: self.destination.clone(),
            wish,
            start_ms: begin.as_ref().map(milliseconds).transpose()?,
            end_ms: milliseconds(&end)?,
            paths: self.paths,
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
            recurrence,
            hold: self.hold,
            provision: self.provision,
            pin: self.pin,
            from_address: self.from_address.map(|address| address.to_string()),
            to_address: self.to_address.map(|address| address.to_string()),
            description: self.description.clone(),
        })
    }
}
