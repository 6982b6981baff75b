//! Starting the far side: one login, through which everything goes, so that whoever has to type a code types it once.

use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longhaul_proto::text::printable;
use longhaul_transfer::files::message::{FilesAnswer, FilesAsk, FilesFailure, FilesFailureKind, PathBytes};
use longhaul_transfer::files::{Ahead, Channel as FilesChannel};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStderr};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::bootstrap::{DAMAGED, GO, NEEDS, Program, UNFIT, machine, script};
use crate::channel::Channel;
use crate::dial::AddressFamily;
use crate::message::{Answer, Ask, Ready, VERSION};
use crate::{Error, Ssh};

/// Lines that a login may print of its own before the far side's first. A bound, lest a program that is no longhaul is read for ever.
const MAX_NOISE_LINES: usize = 1000;
/// How long the far side and ssh may take to end by themselves.
const END_TIME_LIMIT: Duration = Duration::from_secs(2);
/// Longest line of standard error that is shown, in bytes.
const MAX_ERROR_LINE: u64 = 4096;

/// How the far side is to be started.
#[derive(Debug, Clone)]
pub struct Start {
    /// With which ssh.
    pub ssh: Ssh,
    /// The only kind of addresses by which data goes between here and there, if only one is to be used.
    pub family: Option<AddressFamily>,
    /// This very program is to run there, brought along if need be.
    pub bootstrap: bool,
    /// This program's release, for messages.
    pub release: &'static str,
}

/// A far side that runs.
#[derive(Debug)]
pub struct FarSide {
    /// Whom we logged in to, as typed.
    pub host: String,
    /// What it said of itself.
    pub ready: Ready,
    /// What ssh's settings call the host.
    pub host_name: String,
    pub(crate) family: Option<AddressFamily>,
    pub(crate) channel: Channel,
    child: Child,
    errors: Errors,
    /// Pages of a directory that are under way.
    ahead: Ahead,
}

impl FarSide {
    /// Logs in to `host` and starts the far side there.
    ///
    /// # Errors
    /// [`Error`]: what ssh said, or what is missing there.
    pub async fn start(start: &Start, host: &str) -> Result<Self, Error> {
        let own = tokio::task::spawn_blocking(|| Program::of("/proc/self/exe".as_ref()));
        let own = own.await.map_err(std::io::Error::other)?;
        let own = own.map_err(Error::OwnProgram)?;
        let (channel, theirs) = Channel::pair()?;
        let mut command = start.ssh.command(host, &script(&own, start.bootstrap));
        command
            .stdin(theirs.try_clone()?)
            .stdout(theirs)
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| start.ssh.failed(error))?;
        // It holds the far end of the channel for as long as it lives.
        drop(command);
        let errors = Errors::show(child.stderr.take());
        let starting = Starting {
            start,
            host,
            own,
            channel,
            errors: &errors,
        };
        let (begun, host_name) = tokio::join!(starting.begin(&mut child), start.ssh.host_name(host));
        let (channel, ready) = begun?;
        errors.begun();
        Ok(Self {
            host: host.to_owned(),
            ready,
            host_name,
            family: start.family,
            channel,
            child,
            errors,
            ahead: Ahead::default(),
        })
    }

    /// Asks, and receives the answer.
    pub(crate) async fn ask(&mut self, ask: &Ask) -> Result<Answer, Error> {
        let asked = self.channel.ask(ask).await;
        self.receive(asked.is_ok()).await
    }

    /// Receives the next answer.
    pub(crate) async fn receive(&mut self, asked: bool) -> Result<Answer, Error> {
        match self.channel.answer().await.filter(|_| asked) {
            Some(Answer::Refused { reason }) => Err(Error::Refused {
                host: self.host.clone(),
                reason: printable(reason.as_bytes()),
            }),
            Some(answer) => Ok(answer),
            None => Err(Error::Ended {
                host: self.host.clone(),
                reason: self
                    .errors
                    .last()
                    .await
                    .unwrap_or("the ssh connection is gone".into()),
            }),
        }
    }

    /// Asks about files, or has names changed. A far side that is asked about files is asked nothing else: answers may be under way that
    /// nobody waits for.
    ///
    /// # Errors
    /// The far side is gone, or answers something else.
    pub async fn ask_files(&mut self, ask: FilesAsk) -> Result<FilesAnswer, Error> {
        let mut ahead = std::mem::take(&mut self.ahead);
        let answer = ahead.ask_over(self, &ask).await?;
        self.ahead = ahead;
        match answer {
            FilesAnswer::Failed(FilesFailure {
                kind: FilesFailureKind::NotUnderstood,
                detail,
                ..
            }) => Err(Error::Refused {
                host: self.host.clone(),
                reason: detail,
            }),
            answer => Ok(answer),
        }
    }

    /// The error for an answer to another question.
    pub(crate) fn odd(&self, answer: &Answer) -> Error {
        Error::Answer {
            host: self.host.clone(),
            what: printable(format!("{answer:.60?}").as_bytes()),
        }
    }

    /// Where others may reach this host: what ssh calls it, where its login came in, its own addresses.
    #[must_use]
    pub fn hosts(&self) -> Vec<String> {
        let mut hosts = vec![self.host_name.clone()];
        let reported = self.ready.server.iter().chain(&self.ready.addresses);
        hosts.extend(reported.map(ToString::to_string));
        crate::dial::distinct(hosts)
    }

    /// Ends the far side, and waits for it for a moment.
    pub async fn end(mut self) {
        self.channel.end().await;
        if timeout(END_TIME_LIMIT, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
    }

    /// Returns whether the login has ended: then nothing of the far side is left.
    pub(crate) fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// The channel alone, for a session inside it, and what keeps ssh running.
    pub(crate) fn into_channel(self) -> (Channel, Child) {
        (self.channel, self.child)
    }
}

impl FilesChannel for FarSide {
    type Error = Error;

    async fn say(&mut self, asks: &[FilesAsk]) -> Result<(), Error> {
        for ask in asks {
            // Why it could not be said is received next.
            let _ = self.channel.ask(&Ask::Files(ask.clone())).await;
        }
        Ok(())
    }

    async fn receive(&mut self) -> Result<FilesAnswer, Error> {
        match self.receive(true).await {
            Ok(Answer::Files(answer)) => Ok(answer),
            Ok(other) => Err(self.odd(&other)),
            // A far side of an earlier release refuses what it does not know.
            Err(Error::Refused { reason, .. }) => Ok(FilesAnswer::Failed(FilesFailure::with(
                FilesFailureKind::NotUnderstood,
                &PathBytes::default(),
                &reason,
            ))),
            Err(error) => Err(error),
        }
    }
}

struct Starting<'a> {
    start: &'a Start,
    host: &'a str,
    own: Program,
    channel: Channel,
    errors: &'a Errors,
}

impl Starting<'_> {
    async fn begin(mut self, child: &mut Child) -> Result<(Channel, Ready), Error> {
        let mut missing = false;
        for _ in 0..MAX_NOISE_LINES {
            let Ok(Some(line)) = self.channel.line().await else {
                break;
            };
            if let Some(there) = line.strip_prefix(NEEDS) {
                missing = true;
                if self.start.bootstrap {
                    self.bring(there).await?;
                }
            } else if line == UNFIT {
                return Err(Error::Unfit {
                    host: self.host.into(),
                });
            } else if line == DAMAGED {
                return Err(self.not_brought().await);
            } else if let Ok(Answer::Ready(ready)) = serde_json::from_str(&line) {
                return self.checked(ready);
            }
            // Anything else is what the login shell's own files print.
        }
        Err(self.failure(child, missing).await)
    }

    fn checked(self, ready: Ready) -> Result<(Channel, Ready), Error> {
        if ready.version == VERSION && ready.copy_version == longhaul_transfer::VERSION {
            return Ok((self.channel, ready));
        }
        Err(Error::Version {
            host: self.host.into(),
            there: printable(ready.release.as_bytes()),
            here: self.start.release.into(),
        })
    }

    async fn bring(&mut self, there: &str) -> Result<(), Error> {
        let here = machine();
        if there != here {
            return Err(Error::OtherMachine {
                host: self.host.into(),
                there: printable(there.as_bytes()),
                here,
            });
        }
        let mut file = tokio::fs::File::open("/proc/self/exe")
            .await
            .map_err(Error::OwnProgram)?
            .take(self.own.size);
        let mut piece = vec![0; 256 << 10];
        let mut sent = self.channel.write(GO.as_bytes()).await;
        while sent.is_ok() {
            let read = file.read(&mut piece).await.map_err(Error::OwnProgram)?;
            if read == 0 {
                return Ok(());
            }
            sent = self.channel.write(piece.get(..read).unwrap_or_default()).await;
        }
        Err(self.not_brought().await)
    }

    async fn not_brought(&self) -> Error {
        Error::NotBrought {
            host: self.host.into(),
            reason: self
                .errors
                .last()
                .await
                .unwrap_or("what arrived is not what was sent".into()),
        }
    }

    /// Why there is no far side.
    async fn failure(&self, child: &mut Child, missing: bool) -> Error {
        let host = self.host.to_owned();
        let status = timeout(END_TIME_LIMIT, child.wait()).await;
        let code = status.ok().and_then(Result::ok).and_then(|status| status.code());
        let said = self.errors.last().await;
        match code {
            _ if missing && !self.start.bootstrap => Error::Missing { host },
            // ssh(1): 255 is its own failure, everything else the remote command's.
            Some(255) => Error::Login {
                host,
                reason: said.unwrap_or("ssh does not say why".into()),
            },
            // It did not understand its arguments.
            Some(2) => Error::Version {
                host,
                there: "of another release".into(),
                here: self.start.release.into(),
            },
            code => Error::Ended {
                host,
                reason: said.unwrap_or_else(|| match code {
                    Some(code) => format!("exit status {code}"),
                    None => "no word from it".into(),
                }),
            },
        }
    }
}

/// What ssh and the far side say on standard error: shown as it comes, but for the last line before the far side has begun, which is the
/// reason in an error, if there is one.
#[derive(Debug)]
struct Errors {
    kept: Arc<Mutex<Kept>>,
    reading: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Kept {
    last: Option<String>,
    begun: bool,
}

impl Errors {
    fn show(stderr: Option<ChildStderr>) -> Self {
        let kept = Arc::new(Mutex::new(Kept::default()));
        let reading = stderr.map(|stderr| {
            let kept = kept.clone();
            tokio::spawn(async move {
                let mut stderr = BufReader::new(stderr);
                let mut line = Vec::new();
                loop {
                    line.clear();
                    let read = (&mut stderr)
                        .take(MAX_ERROR_LINE)
                        .read_until(b'\n', &mut line)
                        .await;
                    if !matches!(read, Ok(1..)) {
                        return;
                    }
                    let text = printable(line.trim_ascii_end());
                    if text.is_empty() {
                        continue;
                    }
                    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                    if let Some(before) = kept.last.replace(text) {
                        eprintln!("{before}");
                    }
                    if kept.begun
                        && let Some(text) = kept.last.take()
                    {
                        eprintln!("{text}");
                    }
                }
            })
        });
        Self {
            kept,
            reading: Mutex::new(reading),
        }
    }

    /// The far side runs: nothing is held back any more.
    fn begun(&self) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.begun = true;
        if let Some(text) = kept.last.take() {
            eprintln!("{text}");
        }
    }

    /// The last line, which has not been shown.
    async fn last(&self) -> Option<String> {
        let reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(reading) = reading {
            let _ = timeout(END_TIME_LIMIT, reading).await;
        }
        self.kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .last
            .take()
    }
}
