//! Watches the flow of a session's own hop: its limits, and the actions of right-sizing.

use drs::{FlowWatch, HostLimits, Mode, SAMPLE_PERIOD, Side, WatchSettings};
use longhaul_hop::Conn;

/// Creates the watch of one side.
///
/// The congestion control stays the host's choice, or that of `--congestion`: a session does not
/// decide how to share a path with others. Little unsent data is queued, since data in one stream's
/// socket cannot move to another stream. Slow start does not wait for a window.
pub(crate) fn watch_flow(mode: Mode, side: Side) -> FlowWatch {
    let settings = WatchSettings {
        mode,
        host: HostLimits::read(),
        period: SAMPLE_PERIOD,
        adjust: |flow| {
            flow.keeping_congestion_control()
                .limiting_unsent()
                .opening_window()
        },
    };
    FlowWatch::new(settings, side)
}

/// Takes a sample of the connection, if one is due.
pub(crate) fn sample_conn(watch: &FlowWatch, conn: &Conn) {
    conn.measure(&mut |tcp, number| {
        let Some(news) = watch.sample(tcp, number) else {
            return;
        };
        for applied in &news.actions {
            tracing::debug!(%applied, "right-sizing");
        }
        if let Some(Err(error)) = news.fitting {
            tracing::debug!(%error, "cannot fit the sending rate; leaving it to TCP");
        }
    });
    if let Conn::Stream(stream) = conn {
        watch.record(|side| Some(stream.measurement()?.sample(side)));
    }
}
