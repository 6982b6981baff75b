//! `longhaul trace`: shows the hops to a server as a session passes them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use clap::Args;
use longhaul_control_client::routes::{ClientSource, Origin, RouteQuery, Urgency};
use longhaul_perf::Error as ConnectError;
use longhaul_proto::text::printable;
use longhaul_session::{
    ConnectOptions, Endpoint, Error, Identity, PublicKey, Route, ServiceName, SetupEvent,
    SetupObserver, connect,
};
use parking_lot::Mutex;
use serde_json::json;

mod hops;

use crate::agent_client::run_in_runtime;
use crate::exit::Exit;
use crate::target::SERVER_PORT;
use crate::{answer, home, trust};
use hops::{Answer, Chooser, SetupRecord, TracedHop, trace_hops};

const AFTER_HELP: &str = "\
Exit status: 0 the server took the session; 2 the command line is wrong; 3 no hop, or no further \
one, was reached; 4 a depot or the server does not let this key, or the server's key is not the \
expected one.

Examples:
  longhaul trace store.example                              the route that a copy would use
  longhaul trace direct,store.example                       without depots
  longhaul trace near.example,~far.example,store.example    these depots, and those added between";

/// Show the hops to a server: who they are, how long each took, and who chose it.
///
/// Opens a session and closes it again; no file is touched. Without hops, the route is the one that
/// a copy would use: from routes.toml, else from the controller, else direct. What a hop does not
/// tell is shown as `-`.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct TraceCommand {
    /// Depots to pass, as in --route of cp, and the server: HOST[:PORT] [default port: 7511].
    #[arg(value_name = "[HOP,...,]HOST[:PORT]")]
    path: String,
    /// The server's key, as `longhaul serve` prints it; nothing else is trusted then.
    #[arg(long, value_name = "KEY")]
    host_key: Option<PublicKey>,
    /// Trust a server that is not known yet, and remember its key.
    #[arg(long, conflicts_with = "host_key")]
    accept_new: bool,
    /// TCP congestion control of this host's connection [default: the system's].
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// The key to authenticate with [default: the default key, made when first needed].
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Print one JSON object (docs/routes.md describes it).
    #[arg(long)]
    json: bool,
}

impl TraceCommand {
    /// Runs the command.
    pub fn run(self) -> Result<Exit> {
        run_in_runtime(self.trace())
    }

    async fn trace(self) -> Result<Exit> {
        let identity = Arc::new(home::identity(self.identity.as_deref())?);
        let (route, destination) = parse_path(&self.path)?;
        let (route, chooser) = match route {
            Some(route) => (route, Chooser::User),
            None => self.choose_route(&identity, &destination).await?,
        };
        let mut options = ConnectOptions {
            congestion: self.congestion.clone(),
            ..ConnectOptions::new(
                ServiceName::DOCTOR,
                route.clone(),
                destination.clone(),
                identity,
                trust::trust_nobody(),
            )
        };
        let wanted = trust::HostKeyOptions {
            key: self.host_key,
            accept_new: self.accept_new,
            ca: None,
        };
        let first = trust::settle(&wanted, &mut options).await?;
        let record = Arc::new(Mutex::new(SetupRecord::default()));
        options.setup_observer = Some(observer(Arc::clone(&record)));
        let connected = connect(&options).await;
        let mut record = std::mem::take(&mut *record.lock());
        let error = match connected {
            Ok(session) => {
                first.remember_key();
                record.server_key = Some(session.info().peer);
                // The server took the session; how it ends says nothing about the path.
                let _ = session.close().await;
                None
            }
            Err(error) => Some(advise(error, &destination)),
        };
        let hops = trace_hops(&route, &destination, chooser, &record);
        self.report(&route, &destination, &hops, error.as_ref());
        match error {
            Some(error) => Err(error),
            None => Ok(Exit::Success),
        }
    }

    /// Returns the route that a copy would use, and who chose it.
    async fn choose_route(
        &self,
        identity: &Identity,
        destination: &Endpoint,
    ) -> Result<(Route, Chooser)> {
        let source = ClientSource::from_home(identity.signing_key())
            .map_err(|error| anyhow!("cannot read the settings for routes: {error}"))?;
        let query = RouteQuery {
            destination: destination.clone(),
            receives: false,
            bytes: None,
            streams: None,
            congestion: self.congestion.clone(),
            urgency: Urgency::Urgent,
        };
        let (choice, _) = source.choose(&query).await;
        let chooser = match choice.origin {
            Origin::Nobody => Chooser::Default,
            Origin::File { .. } => Chooser::File,
            Origin::Controller | Origin::Cache { .. } => Chooser::Controller,
        };
        let route = choice.used_routes().first().map(|chosen| &chosen.route);
        Ok((route.cloned().unwrap_or_else(Route::direct), chooser))
    }

    fn report(
        &self,
        route: &Route,
        destination: &Endpoint,
        hops: &[TracedHop],
        error: Option<&anyhow::Error>,
    ) {
        if self.json {
            let hops: Vec<_> = hops.iter().map(TracedHop::to_json).collect();
            let line = |error| printable(crate::failure::format_line(error).as_bytes());
            answer::write_line(json!({
                "schema": "longhaul-trace/1",
                "destination": destination.to_string(),
                "route": route.to_string(),
                "hops": hops,
                "error": error.map(line),
            }));
        } else if !hops.is_empty() {
            answer::write_lines(hops::table(hops).into_iter());
        }
    }
}

/// Splits `HOP,...,HOST` into the route and the server. There is no route without a comma.
fn parse_path(text: &str) -> Result<(Option<Route>, Endpoint)> {
    let failed = |error: &dyn std::fmt::Display| {
        anyhow!(
            "{}: {error}; write HOP,...,HOST[:PORT]",
            printable(text.as_bytes())
        )
    };
    let (route, host) = match text.rsplit_once(',') {
        Some((route, host)) => {
            let route: Route = route.parse().map_err(|error| failed(&error))?;
            (Some(route), host)
        }
        None => (None, text),
    };
    let host = host
        .strip_prefix("lh://")
        .unwrap_or(host)
        .trim_end_matches('/');
    let server = Endpoint::parse_with_port(host, SERVER_PORT).map_err(|error| failed(&error))?;
    match server.port {
        0 => Err(failed(&"port 0 cannot be connected to")),
        _ => Ok((route, server)),
    }
}

/// Returns the observer that notes the steps of the set-up in `record`.
fn observer(record: Arc<Mutex<SetupRecord>>) -> SetupObserver {
    let began = Instant::now();
    SetupObserver::new(move |event| {
        let at: Duration = began.elapsed();
        let mut record = record.lock();
        match event {
            SetupEvent::Connected { details, .. } => record.first_hop = Some(details.clone()),
            SetupEvent::Answered { status, signer } => record.answers.push(Answer {
                at,
                status: status.clone(),
                signer,
            }),
            _ => {}
        }
    })
}

/// Adds to the error what to do about an unknown server.
fn advise(error: Error, server: &Endpoint) -> anyhow::Error {
    let advice = match &error {
        Error::UnknownServer { found, .. } => Some(trust::unknown_server_advice(server, *found)),
        _ => None,
    };
    let error = anyhow!(ConnectError::Connect(error));
    match advice {
        Some(advice) => error.context(advice),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_hops_and_a_server() {
        let parsed = |text: &str| {
            let (route, server) = parse_path(text).unwrap();
            (route.map(|route| route.to_string()), server.to_string())
        };
        let route = |text: &str| Some(text.to_owned());
        let server = |text: &str| text.to_owned();
        assert_eq!(parsed("store"), (None, server("store:7511")));
        assert_eq!(parsed("lh://store:9/"), (None, server("store:9")));
        assert_eq!(
            parsed("direct,store"),
            (route("direct"), server("store:7511"))
        );
        assert_eq!(
            parsed("near,~quic:far:8,[::1]:9"),
            (route("near:7510,~quic:far:8"), server("[::1]:9"))
        );
        for bad in ["", "a,", ",a", "a b", "a,,b", "h:0", "~h", "lhk1:x@d,h"] {
            let error = parse_path(bad).unwrap_err().to_string();
            assert!(error.contains("HOP,...,HOST"), "{bad}: {error}");
        }
    }
}
