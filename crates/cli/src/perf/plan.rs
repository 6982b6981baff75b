//! `longhaul perf --plan`: the paper's manual calculation, as a table.

use anyhow::{Result, bail};
use longhaul_perf::plan::{
    DepotPlan, MAX_ROUTE_HOPS, MAX_SUGGESTED_STREAMS, PathPlan, PlanTarget, Remedy, StreamLimit,
};
use quantities::{ByteCount, Probability, Rate, Time};

use crate::answer;
use crate::exit::Exit;

impl super::PerfPlanOptions {
    /// Calculates and prints the plan.
    pub(super) fn print(&self, json: bool) -> Result<Exit> {
        let (Some(rate), Some(rtt)) = (self.rate, self.rtt) else {
            bail!("a plan needs --rate and --rtt");
        };
        let target = PlanTarget {
            rate,
            rtt,
            mtu: self.mtu,
            control: self.hosts,
            window: self.window,
            loss: self.loss,
        };
        let plan = target.plan();
        if json {
            answer::write_line(serde_json::to_string(&plan)?);
        } else {
            lines(&target, &plan);
        }
        Ok(Exit::Success)
    }
}

fn lines(target: &PlanTarget, plan: &PathPlan) {
    let row = |name: &str, value: String| answer::write_line(format_args!("{name:<34}{value}"));
    row(
        "target",
        format!(
            "{} over {}, segments of {} bytes, {}",
            target.rate, target.rtt, plan.mss_bytes, plan.control
        ),
    );
    row(
        "window (bandwidth x round trip)",
        format!(
            "{} ({:.0} segments)",
            ByteCount(plan.window_bytes),
            plan.window_segments
        ),
    );
    row(
        "slow start to a full window",
        Time::from_seconds(plan.slow_start_s).to_string(),
    );
    row(
        "recovery from one loss",
        Time::from_seconds(plan.recovery_s).to_string(),
    );
    row(
        "most loss for one stream",
        format!(
            "{} (one loss every {})",
            loss(plan.most_loss),
            Time::from_seconds(plan.between_losses_s)
        ),
    );
    let Some(held_by) = plan.held_by else {
        row("one stream", "reaches the target".to_owned());
        return;
    };
    let why = match held_by {
        StreamLimit::Window => "held by the hosts' window",
        StreamLimit::Loss => "held by loss",
    };
    row(
        "one stream",
        format!("{}, {why}", Rate::nearest(plan.one_stream_bps)),
    );
    if let Some(remedy) = &plan.remedy {
        remedies(target, remedy, &row);
    }
}

fn remedies(target: &PlanTarget, remedy: &Remedy, row: &impl Fn(&str, String)) {
    row(
        "streams that reach it",
        remedy.streams.map_or_else(
            || format!("more than {MAX_SUGGESTED_STREAMS}"),
            |streams| streams.to_string(),
        ),
    );
    let depots = |depots: &Option<DepotPlan>| match depots {
        Some(found) => format!(
            "{}, a hop every {} (about {:.0} km of fibre)",
            found.depots,
            Time::from_seconds(found.hop_rtt_s),
            found.hop_km
        ),
        None => format!("more than a route holds ({})", MAX_ROUTE_HOPS - 1),
    };
    if target.loss.is_some() {
        row("or depots, loss spread evenly", depots(&remedy.depots));
        row(
            "or depots, loss all in one place",
            depots(&remedy.depots_if_loss_is_in_one_place),
        );
    } else {
        row("or depots", depots(&remedy.depots));
    }
}

/// Formats a bound on the loss rate. A rate of 1 is no bound.
fn loss(most: f64) -> String {
    if most < 1.0 {
        Probability::nearest(most).to_string()
    } else {
        "any".to_owned()
    }
}
