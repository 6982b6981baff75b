//! Listening programs: the on-ramp accepts sessions for them, and hands them over as connected
//! sockets.

use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use longhaul_hop::{Conn, Payer};
use longhaul_proto::{PublicKey, ServiceName};
use longhaul_ramp_protocol::RampReply;
use longhaul_service::{Phase, PhaseReceiver};
use longhaul_session::{Error, ListenOptions, Listener, Session};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use tokio_seqpacket::UnixSeqpacket;
use tokio_seqpacket::ancillary::AncillaryMessageWriter;

use super::{ProgramsState, refuse, report};
use crate::asker::OnrampClient;
use crate::destination::{OnrampDestination, SessionWish};
use crate::engine::{ConnectionRequest, OpenedConnection};
use crate::exit::Exit;
use crate::failure::ConnectFailure;
use crate::metrics::ConnectionOutcome;
use crate::waiting::PeerRegistration;

/// Name of this entry in the log.
const ENTRY: &str = "session";
/// Ancillary data for the one descriptor that accompanies a message, in bytes.
const ANCILLARY_BYTES: usize = 64;

/// Accepts sessions until the program closes its socket.
pub(crate) async fn serve(
    programs: &Arc<ProgramsState>,
    socket: &Arc<UnixSeqpacket>,
    at: SocketAddr,
    mut phases: PhaseReceiver,
) {
    let listener = match listen(programs, at).await {
        Ok(listener) => listener,
        Err(failed) => return refuse(socket, &failed).await,
    };
    let at = listener.local_addr();
    let payer = Some(OnrampClient::Machine.payer());
    let events = &programs.engine.events;
    events.log(
        payer,
        |left_out| tracing::info!(%at, left_out, "accepts sessions for a program"),
    );
    report(socket, RampReply::Listening { at }).await;
    let mut nothing = [0; 1];
    loop {
        let session = tokio::select! {
            session = listener.accept() => session,
            // Further messages have no meaning, and the end of the stream means that the program
            // stopped listening.
            _ = socket.recv(&mut nothing) => break,
            () = phases.wait_until(Phase::Draining) => break,
        };
        match session {
            Ok(session) => hand_over(programs, socket, session, &phases).await,
            Err(_) => break,
        }
    }
    events.log(
        payer,
        |left_out| tracing::info!(%at, left_out, "no longer accepts sessions for a program"),
    );
}

async fn listen(programs: &Arc<ProgramsState>, at: SocketAddr) -> Result<Listener, ConnectFailure> {
    let peers = Arc::clone(&programs.peers);
    let options = ListenOptions::new(
        at,
        Arc::clone(&programs.engine.identity),
        Arc::new(move |key: &PublicKey| peers.is_authorised(key)),
        vec![ServiceName::STREAM],
    );
    Listener::bind(options).await.map_err(|error| match &error {
        Error::Listen { source, .. } => ConnectFailure {
            description: error.to_string(),
            ..ConnectFailure::from_io(source)
        },
        _ => ConnectFailure::new(Errno::INVAL, error.to_string()),
    })
}

/// Passes the program a socket that is connected to the session. A session that cannot be handed
/// over is reset.
async fn hand_over(
    programs: &Arc<ProgramsState>,
    socket: &UnixSeqpacket,
    session: Session,
    phases: &PhaseReceiver,
) {
    let info = session.info();
    let (Some(peer), key) = (info.first_hop, *info.peer.as_bytes()) else {
        return;
    };
    let Ok(place) = programs.engine.take_permit() else {
        programs
            .engine
            .events
            .log(Some(Payer::Key(info.peer)), |left_out| {
                tracing::warn!(
                    %peer, left_out,
                    "a session was reset: the on-ramp already carries its maximum number of \
                     connections"
                );
            });
        return;
    };
    let (own, theirs, local) = match connected_pair() {
        Ok(pair) => pair,
        Err(error) => {
            programs
                .engine
                .events
                .log(Some(Payer::Key(info.peer)), |left_out| {
                    tracing::warn!(
                        %error, left_out,
                        "a session was reset: it could not be passed to the program"
                    );
                });
            return;
        }
    };
    let request = ConnectionRequest::new(
        ENTRY,
        OnrampClient::Machine,
        OnrampDestination::from_address(peer),
        SessionWish {
            purpose: info.purpose.clone(),
            ..SessionWish::default()
        },
    );
    let known = programs.waiting.register_peer(local, peer);
    let accepted = RampReply::Accepted {
        peer,
        key,
        local: session.local_address(),
    };
    if send_descriptor(socket, accepted, &theirs).await.is_err() {
        return;
    }
    drop(theirs);
    programs
        .engine
        .metrics
        .count(ENTRY, ConnectionOutcome::Route);
    let (programs, phases) = (Arc::clone(programs), phases.clone());
    let opened = OpenedConnection {
        exit: Exit::Session(Box::new(session)),
        reserve: None,
    };
    tokio::spawn(async move {
        let _held: (PeerRegistration, _, PhaseReceiver) = (known, place, phases);
        programs.engine.carry(&request, own, opened, &[]).await;
    });
}

async fn send_descriptor(
    socket: &UnixSeqpacket,
    reply: RampReply<'_>,
    descriptor: &OwnedFd,
) -> io::Result<()> {
    let bytes = reply.encode();
    let bytes = bytes.finish().map_err(io::Error::other)?;
    let mut room = [0; ANCILLARY_BYTES];
    let mut ancillary = AncillaryMessageWriter::new(&mut room);
    ancillary
        .add_fds([descriptor.as_fd()])
        .map_err(|_| io::ErrorKind::OutOfMemory)?;
    socket
        .send_vectored_with_ancillary(&[IoSlice::new(bytes)], &mut ancillary)
        .await?;
    Ok(())
}

/// Returns two TCP sockets on loopback that are connected to each other: the on-ramp's, and one for
/// a program, with its address.
fn connected_pair() -> io::Result<(Conn, OwnedFd, SocketAddr)> {
    use rustix::net::{bind, connect, getsockname, listen, socket_with};
    let new = |flags| {
        socket_with(
            AddressFamily::INET,
            SocketType::STREAM,
            SocketFlags::CLOEXEC | flags,
            None,
        )
    };
    let listener = new(SocketFlags::NONBLOCK)?;
    bind(&listener, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    listen(&listener, 1)?;
    // The program's socket is blocking, as sockets from accept() are. On loopback it connects at
    // once.
    let theirs = new(SocketFlags::empty())?;
    connect(&theirs, &getsockname(&listener)?)?;
    let local = getsockname(&theirs)?;
    // Another process may have connected to the listener first.
    let (own, from) =
        rustix::net::acceptfrom_with(&listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?;
    if from.as_ref() != Some(&local) {
        return Err(io::Error::other("another process connected first"));
    }
    sockopt::set_socket_linger(&own, Some(std::time::Duration::ZERO))?;
    sockopt::set_tcp_nodelay(&own, true)?;
    let local = SocketAddr::try_from(local)?;
    Ok((Conn::new(own)?, theirs, local))
}
