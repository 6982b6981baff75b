//! `longhaul reservations`: lists and controls reservations.

pub mod show;

use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
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
    Commit(NumberArgument),
    /// Return what is held, with all of its series.
    Abort(NumberArgument),
    /// Cancel it, and return all of it.
    Cancel {
        #[command(flatten)]
        number: NumberArgument,
        /// Include all of its series that have not ended.
        #[arg(long)]
        series: bool,
    },
    /// Have its paths set up in its time.
    Provision(NumberArgument),
    /// Have its paths torn down; it stays reserved.
    Release(NumberArgument),
    /// Show what permits this key to use its paths at the depots on them: the route and the grant
    /// of each, as `longhaul perf` takes them. A grant holds for a minute: use it at once.
    Grants(NumberArgument),
}

/// The reservation that an action concerns, unless it precedes the action.
#[derive(Args, Clone, Copy)]
struct NumberArgument {
    /// The number of the reservation; it may also precede the action.
    #[arg(id = "number", value_name = "ID")]
    id: Option<u64>,
}

impl Action {
    /// Returns the number behind the action, if there is one.
    fn number(&self) -> Option<u64> {
        match self {
            Self::Commit(number)
            | Self::Abort(number)
            | Self::Cancel { number, .. }
            | Self::Provision(number)
            | Self::Release(number)
            | Self::Grants(number) => number.id,
        }
    }
}

impl Reservations {
    /// Runs the command.
    pub fn run(self) -> Result<Exit> {
        let now = Zoned::now();
        let behind = self.action.as_ref().and_then(Action::number);
        let id = match (self.id, behind) {
            (Some(before), Some(behind)) if before != behind => {
                bail!("two reservations, {before} and {behind}: run one command for each")
            }
            (before, behind) => before.or(behind),
        };
        let controller = controller::configured_controller(self.identity.as_deref())?;
        let found = match (id, self.action) {
            (None, None) => {
                let query = ReservationQuery {
                    active: (!self.all).then_some(true),
                    own: self.own.then_some(true),
                    ..ReservationQuery::default()
                };
                let found = run_in_runtime(async { Ok(controller.reservations(&query).await?) })?;
                if !self.json {
                    match found.is_empty() {
                        true => answer::write_line(
                            "no reservations: longhaul reserve makes one, --all shows past ones",
                        ),
                        false => {
                            answer::write_lines(show::calendar(&found, &now).into_iter());
                        }
                    }
                    return Ok(Exit::Success);
                }
                found
            }
            (None, Some(_)) => {
                bail!("name a reservation: longhaul reservations ACTION ID");
            }
            (Some(id), None) => vec![run_in_runtime(async {
                Ok(controller.reservation(id).await?)
            })?],
            (Some(id), Some(Action::Grants(_))) => {
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
                    Action::Commit(_) => Done::Commit,
                    Action::Abort(_) => Done::Abort,
                    Action::Cancel { series, .. } => Done::Cancel { series },
                    Action::Provision(_) => Done::Provision,
                    Action::Release(_) | Action::Grants(_) => Done::Release,
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
