//! Explains in one line what limits a copy and what the user can do about it.

use std::time::Duration;

use drs::{Evidence, Limit, LimitTally};
use quantities::{ByteCount, Rate, Time};

/// Facts about a copy's flows, all streams taken together.
#[derive(Debug, Clone, Copy)]
pub struct FlowSummary<'a> {
    /// If true, this machine sends the files. Otherwise it receives them.
    pub push: bool,
    /// Depot next to the sending end, if the route with most of the data has one.
    pub depot: Option<&'a str>,
    /// The sending end's view of its own connection, which leads to its first depot if there is
    /// one.
    pub sending: &'a LimitTally,
    /// The receiving end's view of its own connection.
    pub receiving: &'a LimitTally,
    /// Number of streams at the end of the copy.
    pub streams: usize,
    /// Rate of the whole copy, in bit/s.
    pub goodput_bps: f64,
}

/// Returns the explanation, without a full stop.
pub fn explain(picture: &FlowSummary<'_>) -> String {
    let Some((limit, share)) = picture
        .sending
        .dominant_limit()
        .or_else(|| picture.receiving.dominant_limit())
    else {
        return "the copy was too short to tell what limits it".to_owned();
    };
    let evidence = picture
        .sending
        .evidence()
        .or_else(|| picture.receiving.evidence())
        .unwrap_or_default();
    let limit = match (limit, picture.depot) {
        // The connection to the first depot waits for the depot, which waits for the path behind
        // it.
        (Limit::ReceivingApplication | Limit::ReceiveWindow, Some(depot)) => {
            return explain_first_hop(picture, depot, share);
        }
        (limit, _) => limit,
    };
    format!(
        "{} ({:.0} % of the time){}",
        sentence(picture, limit, &evidence),
        100.0 * share,
        remedy(picture, limit)
    )
}

fn sentence(picture: &FlowSummary<'_>, limit: Limit, evidence: &Evidence) -> String {
    let (sender, receiver) = if picture.push {
        ("this machine", "the server")
    } else {
        ("the server", "this machine")
    };
    let to = picture
        .depot
        .map_or_else(String::new, |depot| format!(" on the way to depot {depot}"));
    let rate = rate(picture.goodput_bps);
    match limit {
        Limit::SendingApplication => {
            format!(
                "limited by {sender}: its disk or processor gives {rate}, \
                 less than the network would carry"
            )
        }
        Limit::ReceivingApplication => {
            format!(
                "limited by {receiver}: its disk or processor takes {rate}, \
                 less than the network delivers"
            )
        }
        Limit::SendBuffer => format!(
            "limited by the send buffer of {sender}: {} for a round trip of {}",
            bytes(evidence.send_buffer),
            time(evidence.rtt)
        ),
        Limit::ReceiveWindow => format!(
            "limited by the receive window of {receiver}: {} for a round trip of {}",
            bytes(evidence.peer_window),
            time(evidence.rtt)
        ),
        Limit::Pacing => format!("limited by a pacing rate set on {sender}: {rate}"),
        Limit::Growing => format!(
            "the copy was still gaining speed{to} when it ended: \
             too short for this round trip of {}",
            time(evidence.rtt)
        ),
        Limit::Loss => format!(
            "limited by lost packets{to}: each one slows a stream for many round trips of {}",
            time(evidence.rtt)
        ),
        Limit::Path => format!(
            "limited by the path itself{to}: it is full at {rate}, with {} of queueing delay",
            time(evidence.rtt.saturating_sub(evidence.min_rtt))
        ),
        Limit::Sender => format!("limited by {sender}, for an unknown reason"),
    }
}

fn remedy(picture: &FlowSummary<'_>, limit: Limit) -> String {
    match limit {
        Limit::SendBuffer | Limit::ReceiveWindow => {
            "; `longhaul doctor` on that machine says how to raise it, and more streams help"
                .to_owned()
        }
        Limit::Loss if picture.depot.is_none() => {
            format!(
                "; a depot near the losses helps most, more streams than {} some",
                picture.streams
            )
        }
        Limit::Loss => format!("; more streams than {} may help", picture.streams),
        _ => String::new(),
    }
}

/// Explains a first hop that waits for its depot. The far end's view says more.
fn explain_first_hop(picture: &FlowSummary<'_>, depot: &str, share: f64) -> String {
    let far = match picture.receiving.dominant_limit() {
        Some((Limit::ReceivingApplication, _)) if picture.push => {
            ": the server reads slower than data arrives"
        }
        Some((Limit::ReceivingApplication, _)) => ": this machine reads slower than data arrives",
        Some((Limit::Loss, _)) => ": packets are lost on the last hop",
        Some((Limit::Path, _)) => ": the last hop is full",
        Some((Limit::ReceiveWindow, _)) => {
            ": the receive window of the last hop is too small for its round trip"
        }
        _ => "; its log shows what limits each of its hops",
    };
    format!(
        "limited behind depot {depot}, which forwards {} and holds back the rest ({:.0} % of the \
         time){far}",
        rate(picture.goodput_bps),
        100.0 * share
    )
}

// These are estimates, so three digits are enough.

fn rate(bps: f64) -> String {
    format!("{:.3}", Rate::nearest(bps))
}

fn bytes(bytes: u64) -> String {
    format!("{:.3}", ByteCount(bytes))
}

fn time(time: Duration) -> String {
    format!("{:.3}", Time(time))
}

#[cfg(test)]
mod tests {
    use super::*;
    use drs::Verdict;

    fn tally(limit: Limit) -> LimitTally {
        let evidence = Evidence {
            interval: Duration::from_secs(1),
            rtt: Duration::from_millis(100),
            min_rtt: Duration::from_millis(60),
            peer_window: 64 << 10,
            send_buffer: 4 << 20,
            ..Evidence::default()
        };
        let mut tally = LimitTally::default();
        tally.add(&Verdict { limit, evidence });
        tally
    }

    fn line(
        push: bool,
        depot: Option<&str>,
        sending: &LimitTally,
        receiving: &LimitTally,
    ) -> String {
        explain(&FlowSummary {
            push,
            depot,
            sending,
            receiving,
            streams: 4,
            goodput_bps: 8e6,
        })
    }

    #[test]
    fn every_limit_is_explained_in_one_line_with_its_cause() {
        let unknown = LimitTally::default();
        for limit in Limit::ALL {
            let line = line(true, None, &tally(limit), &unknown);
            assert!(!line.contains('\n') && line.contains("100 %"), "{line}");
        }
        assert!(
            line(true, None, &tally(Limit::ReceiveWindow), &unknown)
                .contains("of the server: 64 KiB for a round trip of 100 ms")
        );
        assert!(
            line(false, None, &tally(Limit::ReceiveWindow), &unknown).contains("of this machine")
        );
        assert!(line(true, None, &tally(Limit::Path), &unknown).contains("40 ms of queue"));
        assert!(line(true, None, &unknown, &unknown).contains("too short"));
    }

    #[test]
    fn waiting_depot_is_not_blamed() {
        let line = line(
            true,
            Some("gw1"),
            &tally(Limit::ReceivingApplication),
            &tally(Limit::Loss),
        );
        assert!(
            line.contains("behind depot gw1") && line.contains("lost on the last hop"),
            "{line}"
        );
    }

    #[test]
    fn receiving_end_explains_if_the_sending_end_reported_nothing() {
        assert!(
            line(false, None, &LimitTally::default(), &tally(Limit::Loss)).contains("lost packets")
        );
    }
}
