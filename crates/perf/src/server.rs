//! The server of a measurement: accepts measurements within its limits, each on sessions of one
//! key.

use std::{collections::HashMap, sync::Arc, time::Duration};

use longhaul_hop::{HeldPermit, SharedPermits};
use longhaul_session::{PublicKey, Session};
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout, timeout_at},
};

use crate::{
    Error, MeasurementLimits,
    carry::{MeasuredStream, carry},
    limits::{MeasurementRefusal, RequestCounter},
    pump::DRAIN_TIMEOUT,
    wire::{Hello, MeasurementToken, Message},
};

/// Time limit for a client to send its request, to open all sessions, and to start.
const SET_UP_TIMEOUT: Duration = Duration::from_secs(20);
/// Length of the server's intervals, which are not printed and so need not be short.
const SERVER_INTERVAL: Duration = Duration::from_secs(1);

/// Server of measurements.
#[derive(Debug)]
pub struct MeasurementServer {
    limits: MeasurementLimits,
    state: Mutex<State>,
    measurements: Arc<SharedPermits<PublicKey>>,
    sessions: Arc<SharedPermits<PublicKey>>,
}

#[derive(Debug, Default)]
struct State {
    requests: RequestCounter,
    under_way: HashMap<MeasurementToken, OpenMeasurement>,
}

/// A measurement that waits for its other sessions, or runs.
#[derive(Debug)]
struct OpenMeasurement {
    peer: PublicKey,
    joins: mpsc::Sender<JoiningSession>,
}

/// A session that is about to join its measurement.
#[derive(Debug)]
struct JoiningSession {
    number: u16,
    session: Session,
    place: HeldPermit<PublicKey>,
}

/// Entry of a measurement in the list, removed when dropped.
struct MeasurementEntry<'a> {
    server: &'a MeasurementServer,
    token: MeasurementToken,
    _measurement: HeldPermit<PublicKey>,
}

impl Drop for MeasurementEntry<'_> {
    fn drop(&mut self) {
        self.server.state().under_way.remove(&self.token);
    }
}

impl MeasurementServer {
    /// Creates a server with these limits.
    #[must_use]
    pub fn new(limits: MeasurementLimits) -> Arc<Self> {
        // Each measurement has a control session and its streams. As many sessions again may wait
        // for their first message.
        let sessions = limits
            .concurrent
            .saturating_mul(2 * (1 + 2 * usize::from(limits.streams)));
        Arc::new(Self {
            measurements: SharedPermits::new(limits.concurrent),
            sessions: SharedPermits::new(sessions),
            limits,
            state: Mutex::default(),
        })
    }

    /// Serves one session that asks for [`longhaul_session::ServiceName::PERF`]. It is either a
    /// measurement's control session, served to its end, or a further session, which is passed to
    /// its measurement. A measurement ends early when `withdrawn` completes.
    ///
    /// # Errors
    /// The reason why it failed, for the log.
    pub async fn serve(
        &self,
        mut session: Session,
        withdrawn: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        // Dropped without an answer: a client with so many sessions knows its own.
        let place = self
            .sessions
            .take(session.info().peer)
            .map_err(|_| Error::Protocol("more sessions of its key than fit".to_owned()))?;
        match within(
            SET_UP_TIMEOUT,
            "waiting for its first message",
            Message::read(&mut session),
        )
        .await?
        {
            Message::Hello(hello) => self.control(session, &hello, withdrawn).await,
            Message::Attach(attach) => self.join(
                &attach.token,
                JoiningSession {
                    number: attach.stream,
                    session,
                    place,
                },
            ),
            _ => Err(Error::Protocol(
                "it begins with the wrong message".to_owned(),
            )),
        }
    }

    async fn control(
        &self,
        mut control: Session,
        hello: &Hello,
        withdrawn: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        let peer = control.info().peer;
        let (place, joins) = match self.admit(peer, hello) {
            Ok(admitted) => admitted,
            Err(refusal) => return decline(control, refusal).await,
        };
        let done = self.measure(&mut control, hello, joins, withdrawn).await;
        drop(place);
        match done {
            // The client closes when it has the report.
            Ok(()) => control.close().await.map_err(Error::Cut),
            Err(error) => {
                // Best effort: after most errors, the client no longer receives.
                let _ = timeout(DRAIN_TIMEOUT, Message::refusal(&error).write(&mut control)).await;
                let _ = control.close().await;
                Err(error)
            }
        }
    }

    fn admit(
        &self,
        peer: PublicKey,
        hello: &Hello,
    ) -> Result<(MeasurementEntry<'_>, mpsc::Receiver<JoiningSession>), MeasurementRefusal> {
        let mut state = self.state();
        state
            .requests
            .count(peer, std::time::Instant::now(), &self.limits)?;
        self.limits.check(hello)?;
        let busy = MeasurementRefusal::Busy(state.under_way.len());
        if state.under_way.contains_key(&hello.token) {
            return Err(busy);
        }
        let measurement = self.measurements.take(peer).map_err(|_| busy)?;
        let (joins, joined) = mpsc::channel(hello.sessions().into());
        let token = hello.token.clone();
        state
            .under_way
            .insert(token.clone(), OpenMeasurement { peer, joins });
        drop(state);
        let place = MeasurementEntry {
            server: self,
            token,
            _measurement: measurement,
        };
        Ok((place, joined))
    }

    fn join(&self, token: &MeasurementToken, joining: JoiningSession) -> Result<(), Error> {
        let state = self.state();
        let peer = joining.session.info().peer;
        match state
            .under_way
            .get(token)
            .filter(|found| found.peer == peer)
        {
            // Sessions beyond the announced number find the queue full, and are dropped.
            Some(found) => found
                .joins
                .try_send(joining)
                .map_err(|_| Error::Protocol("more sessions than announced".to_owned())),
            None => Err(Error::Protocol(
                "it joins an unknown measurement".to_owned(),
            )),
        }
    }

    async fn measure(
        &self,
        control: &mut Session,
        hello: &Hello,
        mut joins: mpsc::Receiver<JoiningSession>,
        withdrawn: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        Message::Ready.write(control).await?;
        let deadline = Instant::now() + SET_UP_TIMEOUT;
        let mut streams: Vec<MeasuredStream> = Vec::new();
        let mut places = Vec::new();
        while streams.len() < usize::from(hello.sessions()) {
            let joined = timeout_at(deadline, joins.recv()).await;
            let Ok(Some(JoiningSession {
                number,
                mut session,
                place,
            })) = joined
            else {
                return Err(Error::Silent {
                    doing: "waiting for the client's sessions",
                    after: SET_UP_TIMEOUT,
                });
            };
            if number >= hello.sessions() || streams.iter().any(|stream| stream.number == number) {
                return Err(Error::Protocol(format!(
                    "stream {number} twice or too many"
                )));
            }
            Message::Attached.write(&mut session).await?;
            places.push(place);
            streams.push(MeasuredStream {
                number,
                sends: !hello.client_sends(number),
                session,
            });
        }
        joins.close();
        match within(
            SET_UP_TIMEOUT,
            "waiting for the start",
            Message::read(control),
        )
        .await?
        {
            Message::Start => {}
            _ => return Err(Error::Protocol("not started".to_owned())),
        }
        let mut ignored = |_: &_| {};
        let carried = tokio::select! {
            carried = within(
                self.limits.time + 2 * DRAIN_TIMEOUT,
                "measuring for longer than this server allows",
                carry(streams, hello, SERVER_INTERVAL, &mut ignored),
            ) => carried?,
            // The client sends nothing in the meantime, so this is its end.
            early = Message::read(control) => return Err(match early {
                Err(error) => error,
                Ok(_) => Error::Protocol("a message in the middle of the measurement".to_owned()),
            }),
            // No message is under way on `control`. The measured streams are dropped, and so reset.
            () = withdrawn => return Err(Error::Withdrawn),
        };
        Message::Report(carried.report()).write(control).await
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

async fn decline(mut session: Session, reason: impl std::fmt::Display) -> Result<(), Error> {
    let refusal = Message::refusal(reason);
    within(DRAIN_TIMEOUT, "refusing", refusal.write(&mut session)).await?;
    session.close().await.map_err(Error::Cut)
}

async fn within<T>(
    after: Duration,
    doing: &'static str,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    timeout(after, work)
        .await
        .unwrap_or(Err(Error::Silent { doing, after }))
}
