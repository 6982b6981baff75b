//! Starts the far side with a single login, so that a user who must type a code types it once.

use std::process::Stdio;
use std::time::Duration;

use longhaul_hop::unix_ms;
use longhaul_output::message;
use longhaul_proto::text::printable;
use longhaul_transfer::files::message::{
    FilesFailure, FilesFailureKind, FilesRequest, FilesResponse, PathBytes,
};
use longhaul_transfer::files::{FilesChannel, PagePrefetch};
use tokio::io::AsyncReadExt;
use tokio::process::Child;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};

use crate::bootstrap::{GO, ProgramFile, machine, script};
use crate::channel::Channel;
use crate::dial::AddressFamily;
use crate::greeting::{Greeter, Greeting, Overrun};
use crate::message::{FarAnswer, FarQuestion, Ready, VERSION};
use crate::ssh_stderr::StderrLines;
use crate::{Error, Ssh};

/// Time for the far side and ssh to end by themselves.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Options for starting the far side.
#[derive(Debug, Clone)]
pub struct Start {
    /// The ssh command.
    pub ssh: Ssh,
    /// Address family for the data, if it is limited to one.
    pub family: Option<AddressFamily>,
    /// If true, a copy of this program runs there, and is brought along if needed.
    pub bootstrap: bool,
    /// Maximum silence from the authentication until the login runs a command, if it is not the
    /// default.
    pub max_silence: Option<Duration>,
    /// This program's release, for messages.
    pub release: &'static str,
}

/// A running far side.
#[derive(Debug)]
pub struct FarSide {
    /// Host of the login, as typed.
    pub host: String,
    /// First message of the far side.
    pub ready: Ready,
    /// This host's clock when that message arrived, in milliseconds since 1970-01-01 UTC.
    pub(crate) ready_ms: u64,
    /// Name of the host in ssh's settings.
    pub host_name: String,
    pub(crate) family: Option<AddressFamily>,
    pub(crate) channel: Channel,
    child: Child,
    errors: StderrLines,
    /// Pages of a directory that were requested in advance.
    ahead: PagePrefetch,
}

impl FarSide {
    /// Logs in to `host` and starts the far side there.
    ///
    /// # Errors
    /// [`Error`] with ssh's message, or with what the host lacks.
    pub async fn start(start: &Start, host: &str) -> Result<Self, Error> {
        let own = tokio::task::spawn_blocking(ProgramFile::find);
        let own = own.await.map_err(std::io::Error::other)?;
        let own = own.map_err(Error::OwnProgram)?;
        let (channel, theirs) = Channel::pair()?;
        let mut command = start.ssh.command(host, &script(&own, start.bootstrap));
        command
            .stdin(theirs.try_clone()?)
            .stdout(theirs)
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| start.ssh.failed(error))?;
        // The command holds the far end of the channel as long as it lives.
        drop(command);
        let errors = StderrLines::show(child.stderr.take());
        let (is_shared, shared) = oneshot::channel();
        let starting = Starting {
            start,
            host,
            own,
            channel,
            errors: &errors,
            shared: Some(shared),
        };
        let asking = async {
            let settings = start.ssh.settings(host).await;
            // In this case ssh does not run its `LocalCommand`.
            if settings.may_share && start.ssh.has_shared_connection(host).await {
                let _ = is_shared.send(());
            }
            settings.host_name
        };
        let (begun, host_name) = tokio::join!(starting.begin(&mut child), asking);
        let (channel, ready) = begun?;
        let ready_ms = unix_ms();
        errors.mark_started();
        Ok(Self {
            host: host.to_owned(),
            ready,
            ready_ms,
            host_name,
            family: start.family,
            channel,
            child,
            errors,
            ahead: PagePrefetch::default(),
        })
    }

    /// Sends a question, and receives the answer.
    pub(crate) async fn ask(&mut self, ask: &FarQuestion) -> Result<FarAnswer, Error> {
        let asked = self.channel.ask(ask).await;
        self.receive(asked.is_ok()).await
    }

    /// Receives the next answer.
    pub(crate) async fn receive(&mut self, asked: bool) -> Result<FarAnswer, Error> {
        match self.channel.answer().await.filter(|_| asked) {
            Some(FarAnswer::Refused { reason }) => Err(Error::Refused {
                host: self.host.clone(),
                reason: printable(reason.as_bytes()),
            }),
            Some(answer) => Ok(answer),
            None => Err(Error::Ended {
                host: self.host.clone(),
                reason: self
                    .errors
                    .last_line()
                    .await
                    .unwrap_or("the ssh connection is gone".into()),
            }),
        }
    }

    /// Lists files, or changes names. Afterwards no other questions are possible, as answers may be
    /// under way that are no longer needed.
    ///
    /// # Errors
    /// The far side is gone, or its answer does not fit.
    pub async fn ask_files(&mut self, ask: FilesRequest) -> Result<FilesResponse, Error> {
        let mut ahead = std::mem::take(&mut self.ahead);
        let answer = ahead.ask_over(self, &ask).await?;
        self.ahead = ahead;
        match answer {
            FilesResponse::Failed(FilesFailure {
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

    /// Sends several questions about files without waiting in between, and receives the answers in
    /// order. The questions must be few and short enough for the buffers of a pipe.
    ///
    /// # Errors
    /// The far side is gone, or an answer does not fit.
    pub async fn ask_all_files(
        &mut self,
        asks: &[FilesRequest],
    ) -> Result<Vec<FilesResponse>, Error> {
        let mut ahead = std::mem::take(&mut self.ahead);
        let answers = ahead.ask_all_over(self, asks).await?;
        self.ahead = ahead;
        Ok(answers)
    }

    /// Returns the error for an answer that does not fit the question.
    pub(crate) fn unexpected_answer(&self, answer: &FarAnswer) -> Error {
        Error::Answer {
            host: self.host.clone(),
            what: printable(format!("{answer:.60?}").as_bytes()),
        }
    }

    /// Returns names and addresses by which others may reach this host: its name in ssh's settings,
    /// the address of its login, its own addresses.
    #[must_use]
    pub fn hosts(&self) -> Vec<String> {
        let mut hosts = vec![self.host_name.clone()];
        let reported = self.ready.server.iter().chain(&self.ready.addresses);
        hosts.extend(reported.map(ToString::to_string));
        crate::dial::distinct(hosts)
    }

    /// Ends the far side, and waits briefly for it.
    pub async fn end(mut self) {
        self.channel.end().await;
        if timeout(END_TIMEOUT, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
    }

    /// Returns true if the login has ended, so that nothing of the far side is left.
    pub(crate) fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Returns the channel alone, for a session inside it, and the process that keeps it open.
    pub(crate) fn into_channel(self) -> (Channel, Child) {
        (self.channel, self.child)
    }
}

impl FilesChannel for FarSide {
    type Error = Error;

    async fn send(&mut self, asks: &[FilesRequest]) -> Result<(), Error> {
        for ask in asks {
            // If sending fails, receiving reports the reason.
            let _ = self.channel.ask(&FarQuestion::Files(ask.clone())).await;
        }
        Ok(())
    }

    async fn receive(&mut self) -> Result<FilesResponse, Error> {
        match self.receive(true).await {
            Ok(FarAnswer::Files(answer)) => Ok(answer),
            Ok(other) => Err(self.unexpected_answer(&other)),
            // A far side of an earlier release refuses what it does not know.
            Err(Error::Refused { reason, .. }) => {
                Ok(FilesResponse::Failed(FilesFailure::with_detail(
                    FilesFailureKind::NotUnderstood,
                    &PathBytes::default(),
                    &reason,
                )))
            }
            Err(error) => Err(error),
        }
    }
}

struct Starting<'a> {
    start: &'a Start,
    host: &'a str,
    own: ProgramFile,
    channel: Channel,
    errors: &'a StderrLines,
    /// Resolves once ssh is known to use an existing connection.
    shared: Option<oneshot::Receiver<()>>,
}

impl Starting<'_> {
    async fn begin(mut self, child: &mut Child) -> Result<(Channel, Ready), Error> {
        let mut greeter = Greeter::new(self.start.max_silence);
        let mut missing = false;
        loop {
            while let Some(line) = self.channel.next_line() {
                match greeter.read(&line) {
                    None => {}
                    Some(Greeting::Needs(there)) => {
                        missing = true;
                        if self.start.bootstrap {
                            greeter.lift_time_limit();
                            self.bring(&there).await?;
                        }
                    }
                    Some(Greeting::Unfit) => {
                        return Err(Error::Unfit {
                            host: self.host.into(),
                        });
                    }
                    Some(Greeting::Damaged) => return Err(self.not_brought().await),
                    Some(Greeting::Ready(ready)) => return self.checked(*ready),
                }
            }
            match self.receive_output(&mut greeter).await {
                Ok(true) => {}
                Ok(false) => return Err(self.start_error(child, greeter, missing).await),
                Err(overrun) => return Err(self.overrun_error(child, greeter, overrun).await),
            }
        }
    }

    /// Waits for more output of the login. Returns false at its end.
    async fn receive_output(&mut self, greeter: &mut Greeter) -> Result<bool, Overrun> {
        let deadline = greeter.deadline();
        let overrun = async {
            match deadline {
                Some((moment, overrun)) => {
                    sleep_until(moment).await;
                    overrun
                }
                None => std::future::pending().await,
            }
        };
        let Self {
            channel, shared, ..
        } = self;
        tokio::select! {
            biased;
            heard = channel.fill() => match heard {
                Ok(bytes @ 1..) => greeter.record_output(bytes, Instant::now()).map(|()| true),
                Ok(0) | Err(_) => Ok(false),
            },
            overrun = overrun => Err(overrun),
            is_shared = uses_existing_connection(shared), if shared.is_some() => {
                *shared = None;
                match is_shared {
                    true => greeter.record_output(0, Instant::now()).map(|()| true),
                    false => Ok(true),
                }
            }
        }
    }

    /// Builds the error for a login that continues without a result.
    async fn overrun_error(&self, child: &mut Child, greeter: Greeter, overrun: Overrun) -> Error {
        let _ = child.start_kill();
        let last_error = self.errors.last_line().await;
        let host = self.host.to_owned();
        let last_line = last_words(greeter.last_line(self.channel.unread()), last_error);
        let reason = match last_line {
            Some(said) => format!("{overrun}; its last line was {said}"),
            None => overrun.to_string(),
        };
        match overrun {
            Overrun::Silent | Overrun::Slow => Error::Stuck { host, reason },
            Overrun::Noisy => Error::Noisy { host, reason },
        }
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
        let mut file = tokio::fs::File::open(&self.own.path)
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
            sent = self
                .channel
                .write(piece.get(..read).unwrap_or_default())
                .await;
        }
        Err(self.not_brought().await)
    }

    async fn not_brought(&self) -> Error {
        Error::NotBrought {
            host: self.host.into(),
            reason: self
                .errors
                .last_line()
                .await
                .unwrap_or("the program was corrupted on the way".into()),
        }
    }

    /// Builds the error for a far side that did not start.
    async fn start_error(&self, child: &mut Child, greeter: Greeter, missing: bool) -> Error {
        let host = self.host.to_owned();
        let status = timeout(END_TIMEOUT, child.wait()).await;
        let code = status
            .ok()
            .and_then(Result::ok)
            .and_then(|status| status.code());
        let last_error = self.errors.last_line().await;
        let how = || match code {
            Some(code) => format!("exit status {code}"),
            None => "it ended without any output".into(),
        };
        match code {
            _ if missing && !self.start.bootstrap => Error::Missing { host },
            // ssh(1): 255 is its own failure, everything else the remote command's.
            Some(255) => Error::Login {
                host,
                reason: last_error.unwrap_or("ssh gave no reason".into()),
            },
            // The account has no shell, or one that only runs certain commands.
            _ if !greeter.has_begun() => Error::NoCommand {
                host,
                reason: last_words(greeter.last_line(self.channel.unread()), last_error)
                    .unwrap_or_else(how),
            },
            // It did not understand its arguments.
            Some(2) => {
                last_error.inspect(|line| message!("{line}"));
                Error::Version {
                    host,
                    there: "of another release".into(),
                    here: self.start.release.into(),
                }
            }
            _ => Error::Ended {
                host,
                reason: last_error.unwrap_or_else(how),
            },
        }
    }
}

/// Waits until it is known whether ssh uses an existing connection.
async fn uses_existing_connection(shared: &mut Option<oneshot::Receiver<()>>) -> bool {
    match shared {
        Some(shared) => shared.await.is_ok(),
        None => false,
    }
}

/// Formats the last output of a login, on standard output and on standard error.
fn last_words(output: Option<String>, error: Option<String>) -> Option<String> {
    match (output, error) {
        (Some(output), Some(error)) => {
            Some(format!("\"{output}\" (on standard error: \"{error}\")"))
        }
        (one, other) => one.or(other).map(|line| format!("\"{line}\"")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_login_that_falls_silent_is_abandoned() {
        let (channel, theirs) = Channel::pair().unwrap();
        let start = Start {
            ssh: Ssh::default(),
            family: None,
            bootstrap: false,
            max_silence: None,
            release: "1.2.3",
        };
        let (is_shared, shared) = oneshot::channel();
        let mut starting = Starting {
            start: &start,
            host: "host",
            own: ProgramFile {
                path: "/no/such/program".into(),
                hash: String::new(),
                size: 0,
            },
            channel,
            errors: &StderrLines::show(None),
            shared: Some(shared),
        };
        let mut greeter = Greeter::default();
        // A person may be typing a password.
        let hour = Duration::from_secs(3600);
        assert!(
            timeout(hour, starting.receive_output(&mut greeter))
                .await
                .is_err()
        );
        is_shared.send(()).unwrap();
        assert_eq!(starting.receive_output(&mut greeter).await, Ok(true));
        assert!(greeter.deadline().is_some());
        let mut login = UnixStream::from(theirs);
        login.write_all(b"Welcome\n$ ").unwrap();
        assert_eq!(starting.receive_output(&mut greeter).await, Ok(true));
        while let Some(line) = starting.channel.next_line() {
            assert_eq!(greeter.read(&line), None);
        }
        let begun = Instant::now();
        assert_eq!(
            starting.receive_output(&mut greeter).await,
            Err(Overrun::Silent)
        );
        assert!(
            begun.elapsed() < Duration::from_secs(21),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!(
            greeter.last_line(starting.channel.unread()).as_deref(),
            Some("$")
        );
    }
}
