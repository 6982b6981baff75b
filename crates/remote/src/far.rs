//! The far side: `longhaul serve --over-stdio`, started over ssh by the user who copies, as the
//! user who logged in.
//!
//! It answers the questions on its standard input, and serves one key and the paths it was given.
//! It ends with its standard input, whatever is under way then.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Shutdown};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use longhaul_hop::{Conn, unix_ms};
use longhaul_proto::SigningKey;
use longhaul_session::Identity;
use longhaul_transfer::ServerLimits;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::Error;
use crate::dial::own_addresses;
use crate::message::{FarAnswer, FarQuestion, MAX_LINE_BYTES, Ready, VERSION};

mod copy;
mod files;
mod resolve;
mod serving;

use files::LoginFiles;
use serving::Serving;

/// Time for work under way to end once the other side is gone, which includes removing temporary
/// files.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for sessions to end by themselves once the other side is gone.
const SESSION_END_TIMEOUT: Duration = Duration::from_millis(200);
/// Size in bytes of the buffer between ssh and a session inside it.
const RELAY_BUFFER_BYTES: usize = 64 << 10;

/// Input from standard input.
enum Incoming {
    Ask(FarQuestion),
    /// From here on it carries a session, whose bytes pass through this socket.
    Inside(UnixStream),
    /// Input that is not a question.
    Unexpected,
}

/// Runs the far side to its end. `release` is the release that it reports. `receipt_key` signs the
/// receipts of copies, else the key of the session does.
///
/// # Errors
/// [`Error`] if it can't start.
pub async fn serve_over_stdio(
    release: &str,
    limits: ServerLimits,
    receipt_key: Option<SigningKey>,
) -> Result<(), Error> {
    let identity = Arc::new(Identity::generate()?);
    let receipt_key = receipt_key.unwrap_or_else(|| identity.signing_key().clone());
    let (answers, written) = write_answers(File::from(duplicate(std::io::stdout())?))?;
    let mut incoming = read_questions(File::from(duplicate(std::io::stdin())?))?;
    let (client, server) = ssh_addresses(std::env::var("SSH_CONNECTION").ok().as_deref());
    let said_ms = unix_ms();
    let _ = answers.send(FarAnswer::Ready(Ready {
        version: VERSION,
        copy_version: longhaul_transfer::VERSION,
        release: release.to_owned(),
        key: identity.public(),
        client,
        server,
        addresses: own_addresses(),
        unix_ms: Some(said_ms),
    }));
    let mut far = FarServer {
        identity,
        receipt_key,
        limits,
        said_ms,
        serving: None,
        files: LoginFiles::default(),
        answers,
        sessions: JoinSet::new(),
    };
    while let Some(incoming) = incoming.recv().await {
        far.take(incoming).await;
    }
    far.end().await;
    let _ = timeout(END_TIMEOUT, written).await;
    Ok(())
}

struct FarServer {
    identity: Arc<Identity>,
    receipt_key: SigningKey,
    limits: ServerLimits,
    /// This host's clock when it reported that it was ready.
    said_ms: u64,
    serving: Option<Serving>,
    files: LoginFiles,
    answers: mpsc::UnboundedSender<FarAnswer>,
    /// Sessions that run beside the questions.
    sessions: JoinSet<()>,
}

impl FarServer {
    async fn take(&mut self, incoming: Incoming) {
        while self.sessions.try_join_next().is_some() {}
        let answer = match incoming {
            Incoming::Ask(FarQuestion::Serve(ask)) => {
                // One at a time: serving the previous paths ends.
                self.serving = None;
                let ahead_ms = ask
                    .clock
                    .and_then(|clock| clock.offset_from(self.said_ms, unix_ms()));
                let (identity, limits) = (self.identity.clone(), self.limits.clone());
                match Serving::begin(&ask, identity, limits, ahead_ms.unwrap_or(0)).await {
                    Ok((serving, answer)) => {
                        serving.sign_receipts(self.receipt_key.clone());
                        self.serving = Some(serving);
                        answer
                    }
                    Err(reason) => FarAnswer::Refused { reason },
                }
            }
            Incoming::Ask(FarQuestion::Dial {
                hosts,
                port,
                within_ms,
            }) => match &self.serving {
                Some(serving) => match serving.dial(&hosts, port, within_ms).await {
                    Ok((session, host)) => {
                        self.sessions.spawn(serving.carry(session));
                        FarAnswer::Dialled { host }
                    }
                    Err(attempts) => FarAnswer::NotDialled {
                        reason: attempts.to_string(),
                    },
                },
                None => refused("nothing is served yet"),
            },
            Incoming::Inside(socket) => match (&self.serving, inside(socket)) {
                (Some(serving), Ok(conn)) => {
                    self.sessions.spawn(serving.take_over(conn));
                    FarAnswer::Inside
                }
                (None, _) => refused("nothing is served yet"),
                (_, Err(error)) => FarAnswer::Refused {
                    reason: error.to_string(),
                },
            },
            Incoming::Ask(FarQuestion::Copy(ask) | FarQuestion::CopySelected(ask)) => {
                let (identity, answers) = (self.identity.clone(), self.answers.clone());
                self.sessions.spawn(copy::run(*ask, identity, answers));
                return;
            }
            Incoming::Ask(FarQuestion::Files(ask)) => {
                let files = std::mem::take(&mut self.files);
                let done = tokio::task::spawn_blocking(move || {
                    let mut files = files;
                    let answer = files.answer(&resolve::home(), &ask);
                    (files, answer)
                });
                match done.await {
                    Ok((files, answer)) => {
                        self.files = files;
                        FarAnswer::Files(answer)
                    }
                    Err(error) => FarAnswer::Refused {
                        reason: error.to_string(),
                    },
                }
            }
            Incoming::Ask(FarQuestion::Inside) | Incoming::Unexpected => refused("unknown request"),
        };
        let _ = self.answers.send(answer);
    }

    async fn end(mut self) {
        // A session that sends its last bytes, and one whose client is dead, end by themselves.
        let _ = timeout(SESSION_END_TIMEOUT, async {
            while self.sessions.join_next().await.is_some() {}
        })
        .await;
        let begun = self.serving.take().map(Serving::end);
        self.sessions.abort_all();
        let ending = async {
            if let Some(begun) = begun {
                begun.await;
            }
            // Not `join_all`: that panics if a task was aborted.
            while self.sessions.join_next().await.is_some() {}
        };
        // Work that does not end in time ends with the process.
        let _ = timeout(END_TIMEOUT, ending).await;
    }
}

fn refused(reason: &str) -> FarAnswer {
    FarAnswer::Refused {
        reason: reason.to_owned(),
    }
}

fn inside(socket: UnixStream) -> std::io::Result<Conn> {
    socket.set_nonblocking(true)?;
    Conn::new(socket.into())
}

/// Duplicates the descriptor of `of`.
fn duplicate(of: impl std::os::fd::AsFd) -> std::io::Result<std::os::fd::OwnedFd> {
    of.as_fd().try_clone_to_owned()
}

/// Writes answers on a thread of its own, since ssh may accept them slowly. The receiver learns
/// when all are written.
fn write_answers(
    mut out: File,
) -> std::io::Result<(mpsc::UnboundedSender<FarAnswer>, oneshot::Receiver<()>)> {
    let (sender, mut answers) = mpsc::unbounded_channel();
    let (done, written) = oneshot::channel();
    std::thread::Builder::new().spawn(move || {
        while let Some(answer) = answers.blocking_recv() {
            let Ok(mut line) = serde_json::to_string(&answer) else {
                continue;
            };
            line.push('\n');
            if out.write_all(line.as_bytes()).is_err() {
                break;
            }
        }
        let _ = done.send(());
    })?;
    Ok((sender, written))
}

/// Reads questions on a thread of its own until they end. If one asks for it, the rest is a
/// session's bytes.
fn read_questions(input: File) -> std::io::Result<mpsc::Receiver<Incoming>> {
    let (sender, incoming) = mpsc::channel(16);
    std::thread::Builder::new().spawn(move || {
        let mut input = BufReader::new(input);
        loop {
            let mut line = Vec::new();
            let read = (&mut input)
                .take(MAX_LINE_BYTES as u64)
                .read_until(b'\n', &mut line);
            if !matches!(read, Ok(1..)) {
                return;
            }
            let asked = match serde_json::from_slice(&line) {
                Ok(FarQuestion::Inside) => return carry_inside(input, &sender),
                Ok(ask) => Incoming::Ask(ask),
                Err(_) => Incoming::Unexpected,
            };
            if sender.blocking_send(asked).is_err() {
                return;
            }
        }
    })?;
    Ok(incoming)
}

/// Moves bytes between standard input and output and a socket, until both have ended. `sender`
/// lives that long, and keeps the far side alive.
fn carry_inside(mut input: BufReader<File>, sender: &mpsc::Sender<Incoming>) {
    let (Ok((ours, theirs)), Ok(out)) = (UnixStream::pair(), duplicate(std::io::stdout())) else {
        return;
    };
    let Ok(mut to_out) = ours.try_clone() else {
        return;
    };
    let outwards = std::thread::Builder::new().spawn(move || {
        pump(&mut to_out, &mut File::from(out));
    });
    // The other side sees the end of the output if the thread cannot be started.
    let Ok(outwards) = outwards else { return };
    if sender.blocking_send(Incoming::Inside(theirs)).is_err() {
        return;
    }
    let mut ours = ours;
    pump(&mut input, &mut ours);
    let _ = ours.shutdown(Shutdown::Write);
    let _ = outwards.join();
}

/// Moves bytes until one side has ended. [`std::io::copy`] is not used, as it may use splice(2).
/// That waits for bytes while holding the lock of the pipe to sshd, which the answers need as well.
fn pump(from: &mut impl Read, to: &mut impl Write) {
    let mut piece = vec![0; RELAY_BUFFER_BYTES];
    loop {
        match from.read(&mut piece) {
            Ok(0) => return,
            Ok(read) => match piece.get(..read).map(|bytes| to.write_all(bytes)) {
                Some(Ok(())) => {}
                _ => return,
            },
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Parses the source and destination address of ssh's connection, as sshd sets them (ssh(1),
/// `SSH_CONNECTION`).
fn ssh_addresses(variable: Option<&str>) -> (Option<IpAddr>, Option<IpAddr>) {
    let mut words: VecDeque<&str> = variable.unwrap_or_default().split_whitespace().collect();
    let mut address = || {
        let address = words.pop_front()?;
        words.pop_front()?;
        address.parse().ok()
    };
    (address(), address())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn aborted_sessions_end_without_a_panic() {
        let (answers, _written) = mpsc::unbounded_channel();
        let mut far = FarServer {
            identity: Arc::new(Identity::generate().unwrap()),
            receipt_key: Identity::generate().unwrap().signing_key().clone(),
            limits: ServerLimits::default(),
            said_ms: 0,
            serving: None,
            files: LoginFiles::default(),
            answers,
            sessions: JoinSet::new(),
        };
        far.sessions.spawn(std::future::pending());
        far.end().await;
    }

    #[test]
    fn sshd_connection_addresses_are_parsed() {
        let (client, server) = ssh_addresses(Some("192.0.2.1 5000 2001:db8::2 22"));
        assert_eq!(client, Some([192, 0, 2, 1].into()));
        assert_eq!(server, Some("2001:db8::2".parse().unwrap()));
        for odd in [
            None,
            Some(""),
            Some("x"),
            Some("UNKNOWN 65535 UNKNOWN 65535"),
        ] {
            assert_eq!(ssh_addresses(odd), (None, None));
        }
    }
}
