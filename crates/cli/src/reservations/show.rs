//! Formats reservations for people. Pure.

#![deny(clippy::indexing_slicing)] // what is read here comes from a controller

use jiff::civil::Date;
use jiff::{Timestamp, Zoned};
use longhaul_control_api::domains::{DomainReservation, DomainReservationState};
use longhaul_control_api::reservations::{
    Circuit, CircuitStanding, FullLink, LifeState, LinkDirection, Offer, PacketFilter, PathGrants,
    Piece, Proof, ProvisionState, Refusal, Reservation, ReserveState, RouteConstraints,
    SourcePortRange, Wish,
};
use longhaul_proto::text::printable;
use quantities::{ByteCount, Rate, Time};

/// Hours of a day, each one character of its bar.
const HOURS_PER_DAY: i64 = 24;
/// Milliseconds per hour.
const MS_PER_HOUR: i64 = 3_600_000;
/// Maximum days on which one reservation is shown.
const MAX_DAYS: usize = 14;

fn text(text: &str) -> String {
    printable(text.as_bytes())
}

fn rate(bps: u64) -> Rate {
    Rate::nearest(bps as f64)
}

/// Formats the grants with which sessions use the paths at the depots.
pub fn grants(grants: &PathGrants) -> Vec<String> {
    let lines = grants.items.iter().flat_map(|item| {
        let shown = rate(item.path.rate_bps);
        match (&item.route, &item.grant) {
            (Some(route), Some(grant)) => vec![
                format!("{shown}: --route {}", text(route)),
                format!("  --grant {}", text(grant)),
            ],
            (Some(route), None) => vec![
                format!("{shown}: --route {}", text(route)),
                "  grants are issued from a minute before it begins".to_owned(),
            ],
            _ => vec![format!("{shown}: no depot of the map stands on this path")],
        }
    });
    lines.collect()
}

/// Formats what is reserved in a word or two.
fn wish(wish: Wish) -> String {
    match wish {
        Wish::Rate { rate_bps } => rate(rate_bps).to_string(),
        Wish::Volume { bytes, .. } => ByteCount(bytes).to_string(),
    }
}

fn zoned(at_ms: u64, now: &Zoned) -> Option<Zoned> {
    let at = Timestamp::from_millisecond(i64::try_from(at_ms).ok()?).ok()?;
    Some(at.to_zoned(now.time_zone().clone()))
}

/// Formats a moment, with the year if it is not this year.
fn moment(at_ms: u64, now: &Zoned) -> String {
    let Some(at) = zoned(at_ms, now) else {
        return "never".to_owned();
    };
    let form = match (at.year() == now.year(), at.second() == 0) {
        (true, true) => "%a %e %b %H:%M",
        (true, false) => "%a %e %b %H:%M:%S",
        (false, true) => "%a %e %b %Y %H:%M",
        (false, false) => "%a %e %b %Y %H:%M:%S",
    };
    at.strftime(form).to_string()
}

fn window(start_ms: u64, end_ms: u64, now: &Zoned) -> String {
    let (start, end) = (moment(start_ms, now), moment(end_ms, now));
    let is_one_day =
        zoned(start_ms, now).map(|at| at.date()) == zoned(end_ms, now).map(|at| at.date());
    match end.rsplit_once(' ') {
        Some((_, time)) if is_one_day => format!("{start} - {time}"),
        _ => format!("{start} - {end}"),
    }
}

/// Formats its state in one word.
pub fn state(reservation: &Reservation) -> &'static str {
    let state = reservation.state;
    match (state.life, state.reserve, state.provision) {
        (LifeState::Failed, ..) => "failed",
        (LifeState::PassedEndTime, ..) => "over",
        (LifeState::Terminating | LifeState::Terminated, ..) => "cancelled",
        (LifeState::Created, ..) if !reservation.impaired.is_empty() => "impaired",
        (LifeState::Created, ReserveState::Held, None) => "held",
        (LifeState::Created, ReserveState::Held, Some(_)) => "changing",
        (LifeState::Created, _, None) => "not taken",
        (LifeState::Created, _, Some(ProvisionState::Provisioning)) => "provisioning",
        (LifeState::Created, _, Some(ProvisionState::Provisioned)) => "provisioned",
        (LifeState::Created, _, Some(ProvisionState::Releasing)) => "releasing",
        (LifeState::Created, _, Some(_)) => "reserved",
    }
}

/// Formats a path by its sites.
fn path(links: &[LinkDirection]) -> String {
    let first = links.first().map(|link| text(&link.from));
    let sites: Vec<String> = first
        .into_iter()
        .chain(links.iter().map(|link| text(&link.to)))
        .collect();
    sites.join(" - ")
}

fn pieces(pieces: &[Piece], now: &Zoned) -> Vec<String> {
    let mut lines = Vec::new();
    for piece in pieces {
        if pieces.len() > 1 {
            lines.push(format!("  {}", window(piece.start_ms, piece.end_ms, now)));
        }
        for one in &piece.paths {
            let ports = one.source_ports.map(|ports| {
                let SourcePortRange { first, last } = ports;
                format!(", source ports {first}-{last}")
            });
            let carried = one.carried.map(|carried| {
                let drops = match carried.drops {
                    0 => String::new(),
                    drops => {
                        format!(" ({drops} packets exceeded the reserved rate and were dropped)")
                    }
                };
                format!(", {} went over it{drops}", ByteCount(carried.bytes))
            });
            lines.push(format!(
                "  {}  {}{}{}",
                rate(one.rate_bps),
                path(&one.links),
                ports.unwrap_or_default(),
                carried.unwrap_or_default()
            ));
        }
    }
    lines
}

/// Formats a reservation with its paths.
pub fn details(reservation: &Reservation, now: &Zoned) -> Vec<String> {
    let mut lines = vec![format!(
        "{} {}: {} from {} to {}, {}",
        reservation.id,
        state(reservation),
        wish(reservation.wish),
        text(&reservation.from),
        text(&reservation.to),
        window(reservation.start_ms, reservation.end_ms, now)
    )];
    lines.extend(constraints(reservation));
    lines.extend(pieces(&reservation.pieces, now));
    if let Some(held) = &reservation.held {
        let until = moment(held.until_ms, now);
        lines.push(format!(
            "  held until {until}: {}, {}",
            wish(held.wish),
            window(held.start_ms, held.end_ms, now)
        ));
        lines.extend(pieces(&held.pieces, now));
    }
    if !reservation.impaired.is_empty() {
        let links: Vec<String> = reservation
            .impaired
            .iter()
            .map(|link| text(&link.link))
            .collect();
        lines.push(format!(
            "  over links that failed, shrank or left the map: {}",
            links.join(", ")
        ));
    }
    if let Some(circuit) = &reservation.circuit {
        lines.extend(circuit_lines(circuit));
    }
    if let Some(across) = &reservation.across {
        lines.push(format!("  {}", across_line(across, now)));
        lines.extend(segments(across));
    }
    if let Some(failure) = &reservation.failure {
        lines.push(format!("  failed: {}", text(failure)));
    }
    if let Some(description) = &reservation.description {
        lines.push(format!("  for: {}", text(description)));
    }
    lines
}

/// Formats a reservation across domains, with its segments if they are asked for.
pub fn across(reservation: &DomainReservation, is_detailed: bool, now: &Zoned) -> Vec<String> {
    let own = reservation
        .segments
        .iter()
        .find_map(|segment| segment.reservation);
    let number = own.map(|number| format!("{number} ")).unwrap_or_default();
    let mut lines = vec![format!("{number}{}", across_line(reservation, now))];
    if is_detailed {
        lines.extend(segments(reservation));
    }
    lines
}

fn across_line(reservation: &DomainReservation, now: &Zoned) -> String {
    let state = match reservation.state {
        DomainReservationState::Reserving => "being reserved",
        DomainReservationState::Held => "held",
        DomainReservationState::Committing | DomainReservationState::Committed => "being committed",
        DomainReservationState::Reserved => "reserved",
        DomainReservationState::Terminating => "being returned",
        DomainReservationState::Terminated => "over",
    };
    format!(
        "{state}: {} from {} to {}, {}",
        rate(reservation.rate_bps),
        text(&reservation.from.to_string()),
        text(&reservation.to.to_string()),
        window(reservation.start_ms, reservation.end_ms, now)
    )
}

/// Formats the segments of a reservation across domains, and the reason for its end.
fn segments(reservation: &DomainReservation) -> Vec<String> {
    let segments = reservation.segments.iter().map(|segment| {
        let (from, to) = (text(&segment.from.point), text(&segment.to.point));
        format!("    domain {}: {from} - {to}", segment.domain)
    });
    let problem = reservation.problem.iter().map(|problem| {
        format!(
            "    ended by domain {}: {}",
            problem.domain,
            text(&problem.text)
        )
    });
    segments.chain(problem).collect()
}

/// Formats the constraints on the paths and packets of a reservation, if there are any, as the
/// options that request them.
fn constraints(reservation: &Reservation) -> Option<String> {
    let RouteConstraints {
        via,
        only_links,
        max_hops,
        max_latency_us,
        ingress,
        egress,
        paths,
    } = &reservation.constraints;
    let mut words: Vec<String> = via
        .iter()
        .map(|site| format!("--via {}", text(site)))
        .collect();
    if !only_links.is_empty() {
        words.push(format!("--only-links {}", text(&only_links.join(","))));
    }
    words.extend(max_hops.map(|most| format!("--max-hops {most}")));
    words.extend(max_latency_us.map(|us| {
        let most = Time(std::time::Duration::from_micros(us));
        format!("--max-latency '{most}'")
    }));
    words.extend(
        ingress
            .iter()
            .map(|site| format!("--ingress {}", text(site))),
    );
    words.extend(egress.iter().map(|site| format!("--egress {}", text(site))));
    words.extend(paths.iter().map(|path| {
        let sites = text(&path.sites.join(","));
        format!("--path {sites}={}", path.rate_bps)
    }));
    let PacketFilter { source_ports, dscp } = reservation.filter;
    words.extend(source_ports.map(|ports| format!("--ports {}-{}", ports.first, ports.last)));
    words.extend(dscp.map(|dscp| format!("--dscp {dscp}")));
    (!words.is_empty()).then(|| format!("  {}", words.join(" ")))
}

/// Formats the state of a circuit.
fn circuit_lines(circuit: &Circuit) -> Vec<String> {
    let word = match circuit.standing {
        CircuitStanding::Waiting => "set up when its time comes",
        CircuitStanding::SettingUp => "being set up",
        CircuitStanding::SetUp => "set up",
        CircuitStanding::Failed => "failed",
        CircuitStanding::TearingDown => "being torn down",
        CircuitStanding::Unmanaged => "not set up",
    };
    let why = circuit.why.as_deref().map(|why| format!(": {}", text(why)));
    let mut lines = vec![format!("  circuit: {word}{}", why.unwrap_or_default())];
    if !circuit.not_set_up.is_empty() {
        let sites: Vec<String> = circuit.not_set_up.iter().map(|site| text(site)).collect();
        lines.push(format!(
            "  not set up at: {} (best effort there)",
            sites.join(", ")
        ));
    }
    lines
}

/// Formats a refusal: that there is not enough bandwidth, why, and the offers.
pub fn refusal(refusal: &Refusal, now: &Zoned) -> Vec<String> {
    let mut lines = Vec::new();
    match &refusal.proof {
        Proof::Cut {
            links, until_ms, ..
        } => {
            lines.extend(links.iter().map(full));
            if let Some(until_ms) = until_ms.filter(|until| *until > refusal.start_ms) {
                lines.push(format!("full until {}", moment(until_ms, now)));
            }
        }
        Proof::Volume { links, .. } => lines.extend(links.iter().map(full)),
        Proof::Stretches { .. }
        | Proof::Searched { .. }
        | Proof::Constrained { .. }
        | Proof::Unknown => {}
    }
    let offers = &refusal.offers;
    for (what, found) in [
        ("later", &offers.later),
        ("slower", &offers.slower),
        ("volume", &offers.volume),
    ] {
        lines.extend(
            found
                .as_ref()
                .map(|found| format!("offer, {what}: {}", offer(found, now))),
        );
    }
    if offers.left_out {
        lines.push("there may be other offers: ask again".to_owned());
    }
    lines
}

fn full(full: &FullLink) -> String {
    let mut by: Vec<String> = full
        .by
        .iter()
        .map(|id| format!("reservation {id}"))
        .collect();
    if full.by_others > 0 {
        by.push(format!("{} of others", full.by_others));
    }
    let by = match by.is_empty() {
        true => String::new(),
        false => format!(", taken by {}", by.join(", ")),
    };
    let LinkDirection { link, from, to } = &full.link;
    format!(
        "{} from {} to {}: {} left{by}",
        text(link),
        text(from),
        text(to),
        rate(full.left_bps)
    )
}

/// Formats an offer as the options that request it.
fn offer(offer: &Offer, now: &Zoned) -> String {
    let request = &offer.request;
    // Exact to the bit and the byte, so that rounding does not request more than there is.
    let wish = match request.wish {
        Wish::Rate { rate_bps } => format!("--rate {rate_bps} ({})", rate(rate_bps)),
        Wish::Volume { bytes, .. } => format!("--bytes {bytes} ({})", ByteCount(bytes)),
    };
    let at = |at_ms: u64| {
        let at = i64::try_from(at_ms)
            .ok()
            .and_then(|at| Timestamp::from_millisecond(at).ok());
        at.map(|at| at.to_string()).unwrap_or_default()
    };
    let begin = request
        .start_ms
        .map(|start| format!(" --from {}", at(start)))
        .unwrap_or_default();
    let start = request.start_ms.unwrap_or_default();
    format!(
        "{wish}{begin} --until {}, {}",
        at(request.end_ms),
        window(start, request.end_ms, now)
    )
}

/// Formats a calendar: a line for each reservation and day, with its hours on that day.
pub fn calendar(reservations: &[Reservation], now: &Zoned) -> Vec<String> {
    let mut entries: Vec<(Date, i64, &Reservation)> = Vec::new();
    for reservation in reservations {
        let span = zoned(reservation.start_ms, now).zip(zoned(reservation.end_ms, now));
        let Some((start, end)) = span else { continue };
        let mut day = start.date();
        for _ in 0..MAX_DAYS {
            let begins = day.to_zoned(now.time_zone().clone()).ok();
            if begins.is_none_or(|begins| begins >= end) {
                break;
            }
            entries.push((day, start.timestamp().as_millisecond(), reservation));
            let Ok(next) = day.tomorrow() else { break };
            day = next;
        }
    }
    entries.sort_by_key(|(day, start, reservation)| (*day, *start, reservation.id));
    let mut lines = Vec::new();
    let mut shown = None;
    for (day, _, reservation) in entries {
        if shown != Some(day) {
            lines.push(day.strftime("%a %e %b %Y").to_string());
            shown = Some(day);
        }
        lines.push(format!(
            "{:>6}  {}  {:<11}  {}  {} -> {}  {}",
            reservation.id,
            bar(day, reservation, now),
            state(reservation),
            wish(reservation.wish),
            text(&reservation.from),
            text(&reservation.to),
            owner(reservation)
        ));
    }
    lines
}

/// Formats the owner of a reservation, and its delegate if that asked for it.
fn owner(reservation: &Reservation) -> String {
    let owner = text(&reservation.owner_name);
    match &reservation.delegate {
        Some(delegate) => format!("{owner} (asked by {})", text(&delegate.name)),
        None => owner,
    }
}

/// Formats the hours of a day, from midnight on.
fn bar(day: Date, reservation: &Reservation, now: &Zoned) -> String {
    let begins = day
        .to_zoned(now.time_zone().clone())
        .map(|begins| begins.timestamp().as_millisecond());
    let begins = begins.unwrap_or_default();
    let [start, end] =
        [reservation.start_ms, reservation.end_ms].map(|at| i64::try_from(at).unwrap_or(i64::MAX));
    let hour = |hour: i64| {
        let from = begins + hour * MS_PER_HOUR;
        if start < from + MS_PER_HOUR && from < end {
            '#'
        } else {
            '.'
        }
    };
    (0..HOURS_PER_DAY).map(hour).collect()
}

#[cfg(test)]
mod tests {
    use longhaul_control_api::reservations::Offers;

    use super::*;

    fn reservation(id: u64, hours: std::ops::Range<u64>) -> Reservation {
        let day_ms = 1_795_737_600_000; // 2026-11-27, a Friday
        let piece = serde_json::json!({"start_ms": 1, "end_ms": 2, "paths": [{
            "rate_bps": 1e9 as u64, "links": [
                {"link": "a", "from": "west", "to": "north"},
                {"link": "b", "from": "north", "to": "east"}
            ]
        }]});
        serde_json::from_value(serde_json::json!({
            "id": id, "owner": "k", "owner_name": "ana", "from": "dtn1", "to": "store",
            "wish": {"rate": {"rate_bps": 1e9 as u64}},
            "start_ms": day_ms + hours.start * 3_600_000, "end_ms": day_ms + hours.end * 3_600_000,
            "paths": 1, "disjoint": "no", "preference": "fewest-hops", "pieces": [piece],
            "created_ms": 0,
            "state": {"reserve": "start", "provision": "released", "life": "created"}
        }))
        .unwrap()
    }

    fn now() -> Zoned {
        "2026-11-25T12:30:00Z[UTC]".parse().unwrap()
    }

    #[test]
    fn a_calendar_has_a_line_for_each_day() {
        let lines = calendar(&[reservation(2, 23..27), reservation(1, 9..10)], &now());
        assert_eq!(
            lines,
            [
                "Fri 27 Nov 2026",
                "     1  .........#..............  reserved     1 Gbit/s  dtn1 -> store  ana",
                "     2  .......................#  reserved     1 Gbit/s  dtn1 -> store  ana",
                "Sat 28 Nov 2026",
                "     2  ###.....................  reserved     1 Gbit/s  dtn1 -> store  ana",
            ]
        );
    }

    #[test]
    fn a_reservation_is_reported_with_its_paths() {
        let lines = details(&reservation(3, 18..20), &now());
        assert_eq!(
            lines,
            [
                "3 reserved: 1 Gbit/s from dtn1 to store, Fri 27 Nov 18:00 - 20:00",
                "  1 Gbit/s  west - north - east",
            ]
        );
    }

    #[test]
    fn constraints_are_shown_as_options() {
        let mut constrained = reservation(3, 18..20);
        constrained.constraints = serde_json::from_value(serde_json::json!({
            "via": ["north"], "only_links": ["a", "b"], "max_hops": 2, "max_latency_us": 20_000,
            "ingress": "west", "egress": "east"
        }))
        .unwrap();
        constrained.filter = serde_json::from_value(serde_json::json!({
            "source_ports": {"first": 50_000, "last": 50_009}, "dscp": 46
        }))
        .unwrap();
        assert_eq!(
            details(&constrained, &now()).get(1).map(String::as_str),
            Some(
                "  --via north --only-links a,b --max-hops 2 --max-latency '20 ms' --ingress west \
                 --egress east --ports 50000-50009 --dscp 46"
            )
        );
    }

    #[test]
    fn a_refusal_is_reported_with_offers_as_options() {
        let refused: Refusal = serde_json::from_value(serde_json::json!({
            "start_ms": 1_795_737_600_000_u64, "end_ms": 1_795_741_200_000_u64,
            "proof": {"kind": "cut", "rate_bps": 5, "until_ms": 1_795_741_200_000_u64, "links": [
                {
                    "link": "a", "from": "west", "to": "north", "left_bps": 5, "at_ms": 1,
                    "by": [7], "by_others": 2
                }]},
            "offers": {"slower": {"pieces": [], "request": {
                "from": "dtn1", "to": "store", "wish": {"rate": {"rate_bps": 5}},
                "start_ms": 1_795_737_600_000_u64, "end_ms": 1_795_741_200_000_u64
            }}}
        }))
        .unwrap();
        assert_eq!(
            refusal(&refused, &now()),
            [
                "a from west to north: 5 bit/s left, taken by reservation 7, 2 of others",
                "full until Fri 27 Nov 01:00",
                "offer, slower: --rate 5 (5 bit/s) --from 2026-11-27T00:00:00Z --until \
                 2026-11-27T01:00:00Z, Fri 27 Nov 00:00 - 01:00",
            ]
        );
        let busy = Refusal {
            offers: Offers::left_out(),
            ..refused
        };
        assert_eq!(
            refusal(&busy, &now()).split_off(2),
            ["there may be other offers: ask again"]
        );
    }
}
