//! Sessions that continue over another route (LH-RESUME-1 to LH-RESUME-9).

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_hop::Payer;
use longhaul_proto::Route;
use longhaul_session::{
    ConnectOptions, Identity, ResumeError, ResumeEvent, ResumeMemory, ResumeObserver,
    ResumeOptions, RouteList, Session, connect,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::bed::*;

/// Event of a session, without its details.
#[derive(Debug, PartialEq, Eq)]
pub enum Observed {
    Lost,
    Resumed(Option<String>),
    GivenUp(String),
}

/// Returns options for a session that may continue on these routes, and its events.
pub fn resumable(
    offramp: &RunningOfframp,
    me: &Arc<Identity>,
    server: SocketAddr,
    routes: &[&str],
    within: Duration,
) -> (ConnectOptions, mpsc::UnboundedReceiver<Observed>) {
    let (sender, events) = mpsc::unbounded_channel();
    let observer = ResumeObserver::new(move |_, _, event| {
        let observed = match event {
            ResumeEvent::Lost => Observed::Lost,
            ResumeEvent::Resumed { route, .. } => Observed::Resumed(route.map(Route::to_string)),
            ResumeEvent::GivenUp(error) => Observed::GivenUp(error.to_string()),
            _ => return,
        };
        let _ = sender.send(observed);
    });
    let all: Vec<Route> = routes.iter().map(|route| route.parse().unwrap()).collect();
    let resume = ResumeOptions {
        within,
        memory: ResumeMemory::new(64 << 20, 4 << 20),
        payer: Payer::Key(me.public()),
        routes: RouteList::new(move || all.clone()),
        observer,
    };
    let options = ConnectOptions {
        resume: Some(resume),
        ..offramp.connect_options(me, server, routes[0])
    };
    (options, events)
}

/// Establishes a session, and returns both ends.
pub async fn both_ends(options: &ConnectOptions) -> (Session, TcpStream) {
    let (listener, server) = server().await;
    let options = ConnectOptions {
        onward: Some(server.into()),
        ..options.clone()
    };
    let (session, accepted) = tokio::join!(connect(&options), listener.accept());
    (session.unwrap(), accepted.unwrap().0)
}

const NOBODY: &str = "127.0.0.1:9";

fn bytes(length: usize) -> Vec<u8> {
    (0..length as u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_continues_when_a_depot_dies() {
    let me = me();
    let offramp = offramp(&me);
    let ((first, first_task), second) = (mortal_depot(&me), depot(&me));
    let (first, second) = (first.to_string(), second.to_string());
    let nobody: SocketAddr = NOBODY.parse().unwrap();
    let within = Duration::from_secs(60);
    let (options, mut events) = resumable(&offramp, &me, nobody, &[&first, &second], within);
    let (session, mut server) = with_timeout(both_ends(&options)).await;
    assert_eq!(session.info().resumable, Some(within));
    let data = bytes(40_000_000);
    let (mut reader, mut writer) = tokio::io::split(session);
    let (half, killed) = (data.len() / 2, Arc::new(tokio::sync::Notify::new()));
    let sending = async {
        writer.write_all(&data[..half]).await.unwrap();
        killed.notified().await;
        writer.write_all(&data[half..]).await.unwrap();
        writer.shutdown().await.unwrap();
    };
    let echoing = async {
        let (mut from, mut to) = server.split();
        let mut buffer = vec![0; 100_000];
        let mut moved = 0;
        loop {
            let read = from.read(&mut buffer).await.unwrap();
            if read == 0 {
                break;
            }
            // In the middle of both directions.
            if moved < half / 2 && moved + read >= half / 2 {
                first_task.abort();
                killed.notify_one();
            }
            moved += read;
            to.write_all(&buffer[..read]).await.unwrap();
        }
        to.shutdown().await.unwrap();
    };
    let receiving = async {
        let mut back = Vec::new();
        reader.read_to_end(&mut back).await.unwrap();
        back
    };
    let began = Instant::now();
    let ((), (), back) = with_timeout(async { tokio::join!(sending, echoing, receiving) }).await;
    println!("{:?}", began.elapsed());
    assert!(back == data, "{} bytes of {}", back.len(), data.len());
    // Which direction notices the break first is open, and it may break again on the way.
    let resumed = Observed::Resumed(Some(second));
    while events.recv().await.unwrap() != resumed {}
    drop((reader, writer));
    // Both ends are sure of the end, and nothing is left behind.
    for name in [
        "longhaul_offramp_sessions_resumable",
        "longhaul_offramp_resume_memory_bytes",
    ] {
        offramp.wait_for_metric(name, 0.0).await;
    }
    assert_eq!(
        offramp
            .metric("longhaul_offramp_sessions_resumed_total")
            .await,
        1.0
    );
    assert_eq!(
        offramp
            .metric("longhaul_offramp_sessions_not_resumed_total")
            .await,
        0.0
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_session_continues_as_well() {
    let me = me();
    let offramp = offramp(&me);
    let ((first, first_task), second) = (mortal_depot(&me), depot(&me));
    let routes = [first.to_string(), second.to_string()];
    let routes = [routes[0].as_str(), routes[1].as_str()];
    let nobody: SocketAddr = NOBODY.parse().unwrap();
    let (options, mut events) = resumable(&offramp, &me, nobody, &routes, Duration::from_secs(60));
    let (session, mut server) = with_timeout(both_ends(&options)).await;
    let (mut reader, mut writer) = tokio::io::split(session);
    // The off-ramp has completed the handshake once it passes bytes on.
    writer.write_all(b"hello").await.unwrap();
    with_timeout(server.read_exact(&mut [0; 5])).await.unwrap();
    // A reader that waits keeps the session alive.
    let waiting = tokio::spawn(async move {
        let mut answer = [0; 6];
        reader.read_exact(&mut answer).await.unwrap();
        (answer, reader)
    });
    first_task.abort();
    assert_eq!(with_timeout(events.recv()).await, Some(Observed::Lost));
    let resumed = with_timeout(events.recv()).await;
    assert_eq!(resumed, Some(Observed::Resumed(Some(routes[1].to_owned()))));
    writer.write_all(b"question").await.unwrap();
    let mut question = [0; 8];
    with_timeout(server.read_exact(&mut question))
        .await
        .unwrap();
    server.write_all(b"answer").await.unwrap();
    let (answer, _reader) = with_timeout(waiting).await.unwrap();
    assert_eq!((&question, &answer), (b"question", b"answer"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_route_the_session_ends_in_time() {
    let me = me();
    let offramp = offramp(&me);
    let (first, first_task) = mortal_depot(&me);
    let within = Duration::from_millis(4500);
    let nobody: SocketAddr = NOBODY.parse().unwrap();
    let (options, mut events) = resumable(&offramp, &me, nobody, &[&first.to_string()], within);
    let (mut session, mut server) = with_timeout(both_ends(&options)).await;
    assert_eq!(session.info().resumable, Some(within));
    session.write_all(b"hello").await.unwrap();
    with_timeout(server.read_exact(&mut [0; 5])).await.unwrap();
    let began = Instant::now();
    first_task.abort();
    let error = with_timeout(session.read_u8()).await.unwrap_err();
    let took = began.elapsed();
    assert!(
        took >= within && took < within + Duration::from_secs(60),
        "{took:?}"
    );
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let typed = error
        .get_ref()
        .and_then(|error| error.downcast_ref::<ResumeError>());
    let is_typed = matches!(
        typed,
        Some(ResumeError::NotResumed { within: stated, last_failure: Some(_), .. })
            if *stated == within
    );
    assert!(is_typed, "{typed:?}");
    assert!(error.to_string().contains("within 4.5 s"), "{error}");
    assert_eq!(events.recv().await, Some(Observed::Lost));
    assert!(matches!(events.recv().await, Some(Observed::GivenUp(_))));
    // The server gets a reset, not an end.
    let error = with_timeout(server.read_u8()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    offramp
        .wait_for_metric("longhaul_offramp_sessions_not_resumed_total", 1.0)
        .await;
    offramp
        .wait_for_metric("longhaul_offramp_resume_memory_bytes", 0.0)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resets_pass_in_both_directions() {
    let me = me();
    let offramp = offramp(&me);
    let nobody: SocketAddr = NOBODY.parse().unwrap();
    let (options, _events) = resumable(&offramp, &me, nobody, &["direct"], Duration::from_secs(60));
    let (mut session, mut server) = with_timeout(both_ends(&options)).await;
    session.write_all(b"hello").await.unwrap();
    with_timeout(server.read_exact(&mut [0; 5])).await.unwrap();
    drop(session);
    let error = with_timeout(server.read_u8()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let (mut session, server) = with_timeout(both_ends(&options)).await;
    server.set_zero_linger().unwrap();
    drop(server);
    let error = with_timeout(session.read_u8()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    drop(session);
    offramp
        .wait_for_metric("longhaul_offramp_sessions_resumable", 0.0)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offramp_that_does_not_resume_is_used_as_before() {
    let me = me();
    let plain = offramp_with(loopback(me.public()), |config| config.resume = None);
    let nobody: SocketAddr = NOBODY.parse().unwrap();
    let (options, _events) = resumable(&plain, &me, nobody, &["direct"], Duration::from_secs(60));
    let (mut session, mut server) = with_timeout(both_ends(&options)).await;
    assert_eq!(session.info().resumable, None);
    assert!(session.tcp().is_some());
    session.write_all(b"words").await.unwrap();
    let mut words = [0; 5];
    with_timeout(server.read_exact(&mut words)).await.unwrap();
    assert_eq!(&words, b"words");
}
