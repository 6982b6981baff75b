//! `longhaul reservations`: lists and controls reservations.

pub mod show;

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::{Args, Subcommand};
use jiff::Zoned;
use longhaul_control_api::reservations::ReservationQuery;
use longhaul_control_client::controller::ReservationAction as Done;
use longhaul_proto::SessionId;

use crate::agent_client::run_in_runtime;
use crate::exit::Exit;
use crate::{answer, controller};

/// Show reservations: a calendar of all that this key may see, or one reservation; or commit,
/// cancel, set up or tear down one.
#[derive(Args)]
pub struct Reservations {
    /// The number of a reservation [default: all].
    id: Option<u64>,
    #[command(subcommand)]
    action: Option<Action>,
    /// Include reservations that are over: they are kept for a week.
    #[arg(long, conflicts_with = "id")]
    all: bool,
    /// Only one's own.
    #[arg(long, conflicts_with = "id")]
    own: bool,
    /// The key to authenticate with [default: the default key, made when first needed].
    #[arg(long, value_name = "FILE", global = true)]
    identity: Option<PathBuf>,
    /// Print JSON, one object per line for each.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Action {
    /// Commit what is held, with all of its series.
    Commit,
    /// Return what is held, with all of its series.
    Abort,
    /// Cancel it, and return all of it.
    Cancel {
        /// Include all of its series that have not ended.
        #[arg(long)]
        series: bool,
    },
    /// Have its paths set up in its time.
    Provision,
    /// Have its paths torn down; it stays reserved.
    Release,
    /// Show what permits this key to use its paths at the depots on them: the route and the grant
    /// of each, as `longhaul perf` takes them. A grant holds for a minute: use it at once.
    Grants,
}

impl Reservations {
    /// Runs the command.
    pub fn run(self) -> Result<Exit> {
        let now = Zoned::now();
        let controller = controller::configured_controller(self.identity.as_deref())?;
        let found = match (self.id, self.action) {
            (None, None) => {
                let query = ReservationQuery {
                    active: (!self.all).then_some(true),
                    own: self.own.then_some(true),
                    ..ReservationQuery::default()
                };
                let found = run_in_runtime(async { Ok(controller.reservations(&query).await?) })?;
                if !self.json {
                    answer::write_lines(show::calendar(&found, &now).into_iter());
                    return Ok(Exit::Success);
                }
                found
            }
            (None, Some(_)) => {
                return Err(anyhow!(
                    "name a reservation and an action: longhaul reservations ID ACTION"
                ));
            }
            (Some(id), None) => vec![run_in_runtime(async {
                Ok(controller.reservation(id).await?)
            })?],
            (Some(id), Some(Action::Grants)) => {
                let grants = run_in_runtime(async { Ok(controller.grants(id).await?) })?;
                if self.json {
                    answer::write_line(serde_json::to_string(&grants)?);
                } else {
                    answer::write_lines(show::grants(&grants).into_iter());
                }
                return Ok(Exit::Success);
            }
            (Some(id), Some(action)) => {
                let done = match action {
                    Action::Commit => Done::Commit,
                    Action::Abort => Done::Abort,
                    Action::Cancel { series } => Done::Cancel { series },
                    Action::Provision => Done::Provision,
                    Action::Release | Action::Grants => Done::Release,
                };
                let key = SessionId::random()
                    .map_err(|error| anyhow!("cannot make an idempotency key: {error}"))?;
                let key = key.to_string();
                run_in_runtime(async { Ok(controller.act_on_reservation(id, done, &key).await?) })?
                    .reservations
            }
        };
        for reservation in &found {
            if self.json {
                answer::write_line(serde_json::to_string(reservation)?);
            } else {
                answer::write_lines(show::details(reservation, &now).into_iter());
            }
        }
        Ok(Exit::Success)
    }
}
