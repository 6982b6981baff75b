//! `longhaul perf --serve`: answers measurements, and nothing else.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Result, bail};
use longhaul_hop::{EventLog, Payer};
use longhaul_output::message;
use longhaul_perf::{MeasurementLimits, MeasurementServer};
use longhaul_service::bind_everywhere;
use longhaul_session::{ListenOptions, Listener, ServiceName, Session};

use super::Perf;
use crate::answer::{shown_address, write_line};
use crate::exit::Exit;
use crate::stop::StopSignals;
use crate::target::SERVER_PORT;
use crate::{home, logging};

/// Serves until a signal.
pub(super) fn run(perf: &Perf) -> Result<Exit> {
    logging::start("info");
    if perf.serve.allow.is_empty() {
        bail!(
            "no key may measure yet: give one with --allow (longhaul keys show prints a client's)"
        );
    }
    let runtime = crate::runtime::start()?;
    let exit = runtime.block_on(listen(perf));
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    exit
}

async fn listen(perf: &Perf) -> Result<Exit> {
    let identity = Arc::new(home::identity(perf.identity.as_deref())?);
    let key = identity.public();
    let allowed = perf.serve.allow.clone();
    let options = |addr: SocketAddr| {
        let allowed = allowed.clone();
        ListenOptions {
            congestion: perf.congestion.clone(),
            ..ListenOptions::new(
                addr,
                identity.clone(),
                Arc::new(move |key| allowed.contains(key)),
                vec![ServiceName::PERF],
            )
        }
    };
    let listener = match perf.serve.listen {
        Some(addr) => Listener::bind(options(addr)).await?,
        None => bind_everywhere(SERVER_PORT, |addr| Listener::bind(options(addr))).await?,
    };
    if !perf.serve.no_quic {
        crate::quic::listen(&listener, perf.serve.listen, identity.signing_key())?;
    }
    let server = MeasurementServer::new(MeasurementLimits {
        streams: perf.serve.max_streams,
        time: perf.serve.max_time.0,
        concurrent: perf.serve.max_tests,
        per_minute: perf.serve.max_per_minute,
    });
    let mut stop_signals = StopSignals::take()?;
    announce(perf, listener.local_addr(), &key.to_string());
    let events = Arc::new(EventLog::new());
    let serving = async {
        loop {
            match listener.accept().await {
                Ok(session) => answer(server.clone(), events.clone(), session, pending(), ()),
                Err(error) => return error,
            }
        }
    };
    tokio::select! {
        error = serving => Err(error.into()),
        () = stop_signals.received() => Ok(Exit::Success),
    }
}

/// Serves a measurement session in the background, until it ends or `withdrawn` completes. `events`
/// bounds what is logged. `held` is dropped at its end.
pub fn answer(
    server: Arc<MeasurementServer>,
    events: Arc<EventLog>,
    session: Session,
    withdrawn: impl Future<Output = ()> + Send + 'static,
    held: impl Send + 'static,
) {
    tokio::spawn(async move {
        let (id, peer) = (session.info().session_id, session.info().peer);
        let error = server.serve(session, withdrawn).await.err();
        events.log(Some(Payer::Key(peer)), |left_out| {
            let error = error.map(tracing::field::display);
            tracing::info!(
                session = %id, %peer, error, left_out,
                "a measurement's session is over"
            );
        });
        drop(held);
    });
}

/// Prints the address and key as the first lines of standard output, for a person or a program.
fn announce(perf: &Perf, addr: SocketAddr, key: &str) {
    let address = addr.to_string();
    if perf.json {
        write_line(serde_json::json!({ "event": "listening", "address": address, "key": key }));
        return;
    }
    write_line(format_args!("listening on {address}"));
    write_line(format_args!("key {key}"));
    let host = shown_address(addr);
    message!("longhaul: measure with: longhaul perf --host-key {key} {host}");
}
