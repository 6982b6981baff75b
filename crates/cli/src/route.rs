//! `longhaul route`: explains which routes a transfer would use.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use longhaul_control_client::routes::{
    Choice, ChosenRoute, ClientSource, RouteQuery, Spread, Urgency,
};
use longhaul_proto::Endpoint;
use longhaul_proto::text::printable;
use quantities::{ByteCount, Time};
use serde_json::json;

use crate::agent_client::run_in_runtime;
use crate::exit::Exit;
use crate::target::SERVER_PORT;
use crate::{answer, home};

/// Explain in five lines which routes a transfer to a server would use, and why.
///
/// The controller is asked (longhaul controller use URL); while it does not answer, its last table
/// is used, and the last line says so.
#[derive(Args)]
pub struct RouteCommand {
    /// The server: HOST[:PORT].
    #[arg(value_name = "HOST[:PORT]")]
    host: String,
    /// Bytes to move: 500M, 10G; a bare number is bytes [default: a large amount].
    #[arg(long, value_name = "SIZE")]
    size: Option<ByteCount>,
    /// Number of streams [default: as many as help].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    streams: Option<u32>,
    /// Fetch from the server instead of sending to it.
    #[arg(long)]
    fetch: bool,
    /// TCP congestion control of this host's connections [default: the system's].
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// The key to authenticate with [default: the default key, made when first needed].
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl RouteCommand {
    /// Runs the command.
    pub fn run(self) -> Result<Exit> {
        run_in_runtime(self.explain())
    }

    async fn explain(self) -> Result<Exit> {
        let destination = Endpoint::parse_with_port(&self.host, SERVER_PORT)
            .map_err(|error| anyhow!("{}: {error}", printable(self.host.as_bytes())))?;
        let identity = home::identity(self.identity.as_deref())?;
        let source = ClientSource::from_home(identity.signing_key())
            .context("cannot read the settings for routes")?;
        let question = RouteQuery {
            destination,
            receives: self.fetch,
            bytes: self.size.map(|size| size.0),
            streams: self.streams,
            congestion: self.congestion.clone(),
            urgency: Urgency::Urgent,
        };
        let (choice, error) = source.choose(&question).await;
        let away = error.map(|error| error.to_string());
        if self.json {
            let routes = |routes: &[ChosenRoute]| -> Vec<_> {
                let shown = |chosen: &ChosenRoute| {
                    json!({
                        "route": chosen.route.to_string(), "depots": chosen.depots,
                        "seconds": chosen.seconds
                    })
                };
                routes.iter().map(shown).collect()
            };
            answer::write_line(json!({
                "destination": question.destination.to_string(), "bytes": question.bytes,
                "by": choice.origin.word(),
                "routes": routes(choice.used_routes()),
                "others": routes(choice.routes.get(choice.at_once..).unwrap_or_default()),
                "seconds": choice.seconds, "why": lines(&choice, away.as_deref()),
                "controller_error": away,
            }));
        } else {
            for line in lines(&choice, away.as_deref()) {
                answer::write_line(line);
            }
        }
        Ok(Exit::Success)
    }
}

/// Formats the choice in five lines: those of the controller, if it gave them.
fn lines(choice: &Choice, away: Option<&str>) -> Vec<String> {
    if choice.why.len() == 5 {
        return choice.why.clone();
    }
    let others = choice.routes.get(choice.at_once..).unwrap_or_default();
    let others: Vec<String> = others.iter().map(ChosenRoute::name).collect();
    let time = choice.seconds.or_else(|| match choice.used_routes() {
        [one] => one.seconds,
        _ => None,
    });
    vec![
        format!("route: {}", choice.used_names()),
        format!("why: {}", choice.why.join("; ")),
        format!(
            "time: {}",
            time.as_ref().map_or("not known".to_owned(), shown)
        ),
        match others.is_empty() {
            true => "else: direct".to_owned(),
            false => format!("else: {}", others.join(", then ")),
        },
        match away {
            Some(why) => format!(
                "from: {}, because: {}",
                choice.origin,
                printable(why.as_bytes())
            ),
            None => format!("from: {}", choice.origin),
        },
    ]
}

fn shown(spread: &Spread) -> String {
    let [p10, p50, p90] = [spread.p10, spread.p50, spread.p90].map(Time::from_seconds);
    format!("{p50}, and {p10} to {p90} in eight of ten cases")
}
