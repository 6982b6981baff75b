//! `longhaul perf SERVER`: measures, reports each interval, and closes with both ends' counts.

use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Result, anyhow, bail};
use longhaul_output::message;
use longhaul_perf::{
    Error, MeasuredInterval, MeasurementOutcome, TestParameters,
    record::{Course, RecordAttempt, RecordClass},
    report::{self, DirectionTotals, ReportContext},
    wire::{FlowDirection, Length, Protection},
};
use longhaul_proto::text::printable;
use longhaul_session::{ConnectOptions, Endpoint, ServiceName};
use quantities::Time;
use serde_json::{Map, Value};

use super::{Perf, lines};
use crate::exit::Exit;
use crate::stop::StopSignals;
use crate::target::SERVER_PORT;
use crate::trust::PendingHostKey;
use crate::{answer, failure, home, logging, trust};

/// Measures the path to `server`.
pub(super) fn run(perf: &Perf, server: &str) -> Result<Exit> {
    logging::start("error");
    let course = course(perf)?;
    let test = test(perf)?;
    let host = server
        .strip_prefix("lh://")
        .unwrap_or(server)
        .trim_end_matches('/');
    let server =
        Endpoint::parse_with_port(host, SERVER_PORT).map_err(|error| anyhow!("{host}: {error}"))?;
    let runtime = crate::runtime::start()?;
    let exit = runtime.block_on(measure(perf, &server, test, course));
    runtime.shutdown_timeout(std::time::Duration::from_millis(100));
    exit
}

fn test(perf: &Perf) -> Result<TestParameters> {
    let asked = &perf.measure;
    let millis = |time: Time| u64::try_from(time.0.as_millis()).unwrap_or(u64::MAX);
    let length = match asked.bytes {
        Some(bytes) => Length::Bytes(bytes.0),
        None => Length::Milliseconds(millis(asked.time)),
    };
    if length == Length::Milliseconds(0) || millis(asked.interval) < 10 {
        bail!("measure for at least 1 ms, and report at most every 10 ms");
    }
    Ok(TestParameters {
        streams: asked.parallel,
        direction: match (asked.both, asked.reverse) {
            (true, _) => FlowDirection::Both,
            (false, true) => FlowDirection::Reverse,
            (false, false) => FlowDirection::Forward,
        },
        length,
        omit: asked.omit.map(|omit| omit.0).unwrap_or_default(),
        protection: if asked.no_encryption {
            Protection::None
        } else {
            Protection::Tls
        },
        right_size: !asked.observe,
        interval: asked.interval.0,
    })
}

fn course(perf: &Perf) -> Result<Option<Course>> {
    match (perf.measure.distance, perf.measure.hops) {
        (Some(km), Some(_)) if !(km > 0.0 && km < 1e6) => {
            bail!("--distance: {km} is not a distance in km")
        }
        (Some(km), Some(hops)) => Ok(Some(Course { km, hops })),
        _ => Ok(None),
    }
}

async fn measure(
    perf: &Perf,
    server: &Endpoint,
    test: TestParameters,
    course: Option<Course>,
) -> Result<Exit> {
    let mut stop_signals = StopSignals::take_with_hangup()?;
    let (options, first) = options(perf, server).await?;
    if test.protection == Protection::None {
        message!(
            "longhaul: warning: the measured bytes travel unencrypted; only the handshakes and the \
             counts are protected"
        );
    }
    let mut setting = ReportContext {
        host: server.host.to_string(),
        port: server.port,
        route: perf.measure.route.to_string(),
        began: SystemTime::now(),
        test: test.clone(),
        connections: Vec::new(),
    };
    let mut intervals = Vec::new();
    let mut header = true;
    let mut reported = |interval: &MeasuredInterval| {
        if perf.json {
            intervals.push(report::interval_json(interval));
        } else {
            lines::interval(interval, std::mem::take(&mut header));
        }
    };
    let measuring = longhaul_perf::measure(
        &options,
        &test,
        |connections| {
            // Every session is established.
            first.remember_key();
            setting.connections = connections.to_vec();
        },
        &mut reported,
    );
    let result = tokio::select! {
        result = measuring => result.map_err(|error| advise(error, server)),
        () = stop_signals.received() => return Ok(Exit::Interrupted),
    };
    let attempt = course.zip(result.as_ref().ok()).map(|(course, outcome)| {
        let forward = test.direction != FlowDirection::Reverse;
        let (bytes, rate) = DirectionTotals::received(outcome, forward).for_record();
        let relayed = !perf.measure.route.is_direct();
        let class = RecordClass::classify(&setting.connections, test.streams, relayed);
        RecordAttempt::judge(bytes, rate, course, class)
    });
    if perf.json {
        let whole = whole(&setting, intervals, result.as_ref(), attempt.as_ref());
        answer::write_line(serde_json::to_string(&whole)?);
    }
    let outcome = result?;
    if !perf.json {
        lines::end(&outcome, &test);
        if let Some(attempt) = &attempt {
            lines::record(attempt);
        }
    }
    Ok(Exit::Success)
}

/// Returns the complete result in iperf3's form. With an `error`, it has no `end`.
fn whole(
    setting: &ReportContext,
    intervals: Vec<Value>,
    result: Result<&MeasurementOutcome, &anyhow::Error>,
    attempt: Option<&RecordAttempt>,
) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("start".into(), report::start_json(setting));
    object.insert("intervals".into(), intervals.into());
    match result {
        Ok(outcome) => object.insert("end".into(), report::end_json(setting, outcome)),
        Err(error) => object.insert(
            "error".into(),
            printable(failure::format_line(error).as_bytes()).into(),
        ),
    };
    object.insert("longhaul".into(), report::longhaul_json(setting, attempt));
    object
}

async fn options(perf: &Perf, server: &Endpoint) -> Result<(ConnectOptions, PendingHostKey)> {
    let identity = Arc::new(home::identity(perf.identity.as_deref())?);
    let wanted = trust::HostKeyOptions {
        key: perf.measure.host_key,
        accept_new: perf.measure.accept_new,
        ca: None,
    };
    let mut options = ConnectOptions {
        congestion: perf.congestion.clone(),
        grant: perf.measure.grant.clone().map(Box::new),
        quic: Some(crate::quic::dialler()),
        destination_transport: perf.measure.transport,
        ..ConnectOptions::new(
            ServiceName::PERF,
            perf.measure.route.clone(),
            server.clone(),
            identity,
            trust::trust_nobody(),
        )
    };
    let first = trust::settle(&wanted, &mut options).await?;
    Ok((options, first))
}

/// Adds to the error what to do about an unknown server.
fn advise(error: Error, server: &Endpoint) -> anyhow::Error {
    match &error {
        Error::Connect(longhaul_session::Error::UnknownServer { found, .. }) => {
            let advice = trust::unknown_server_advice(server, *found);
            anyhow!(error).context(advice)
        }
        _ => anyhow!(error),
    }
}
