//! `longhaul serve`: lets named keys read and write beneath one directory.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use longhaul_session::{ListenOptions, Listener, Service};
use longhaul_transfer::confine::Dir;
use longhaul_transfer::{Access, Grants, Limits, Server, serve_session};
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::Exit;
use crate::target::SERVER_PORT;
use crate::{answer, doctor, home, logging, perf};

/// Serve a directory to the keys that are granted it.
///
/// Nobody may do anything unless a grant says so. Nothing outside the root is ever read or written: no path and no symbolic
/// link leads out, and links inside are not followed either.
#[derive(Args)]
pub struct Serve {
    /// The directory to serve.
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// Where to listen [default: every address, port 7511]. Port 0 takes a free one, which is printed.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Let this key read the root, or a directory beneath it. Repeatable.
    #[arg(long, value_name = "KEY[=DIR]")]
    read: Vec<String>,
    /// Let this key write in the root, or in a directory beneath it. Repeatable. Writing includes no reading.
    #[arg(long, value_name = "KEY[=DIR]")]
    write: Vec<String>,
    /// A file of grants: `[[grant]]` with key = "lhk1:...", read = ["dir", ...], write = ["dir", ...].
    #[arg(long, value_name = "FILE")]
    grants: Option<PathBuf>,
    /// The server's own key [default: the default key].
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// TCP congestion control of accepted connections [default: the system's].
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Copies carried at once.
    #[arg(long, value_name = "N", default_value_t = Limits::default().copies)]
    max_copies: usize,
    /// Streams of one copy.
    #[arg(long, value_name = "N", default_value_t = Limits::default().streams_per_copy)]
    max_streams: u16,
    /// Let the keys that are granted anything here measure the path as well (`longhaul perf`).
    #[arg(long)]
    perf: bool,
    /// Print the address and key as one JSON object.
    #[arg(long)]
    json: bool,
}

impl Serve {
    /// Serves until a signal.
    pub fn run(self) -> Result<Exit> {
        logging::start("info");
        let runtime = tokio::runtime::Runtime::new().context("cannot start")?;
        let exit = runtime.block_on(self.serve());
        runtime.shutdown_timeout(std::time::Duration::from_secs(1));
        exit
    }

    async fn serve(self) -> Result<Exit> {
        let grants = self.grants()?;
        let root = Dir::open(&self.root)
            .map_err(|errno| anyhow!("{}: {}", self.root.display(), std::io::Error::from(errno)))?;
        let identity = Arc::new(home::identity(self.identity.as_deref())?);
        let key = identity.public();
        let known = grants.clone();
        let limits = Limits {
            copies: self.max_copies,
            streams_per_copy: self.max_streams,
            ..Limits::default()
        };
        let server = Server::new(root, grants, limits);
        let mut services = vec![Service::COPY, Service::DOCTOR];
        if self.perf {
            services.push(Service::PERF);
        }
        let options = |addr| ListenOptions {
            congestion: self.congestion.clone(),
            ..ListenOptions::new(
                addr,
                identity.clone(),
                Arc::new({
                    let known = known.clone();
                    move |key| known.knows(key)
                }),
                services.clone(),
            )
        };
        let listener = match self.listen {
            Some(addr) => Listener::bind(options(addr)).await?,
            // One socket for both families, where there is IPv6.
            None => match Listener::bind(options((Ipv6Addr::UNSPECIFIED, SERVER_PORT).into())).await {
                Ok(listener) => listener,
                Err(_) => Listener::bind(options((Ipv4Addr::UNSPECIFIED, SERVER_PORT).into())).await?,
            },
        };
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        self.announce(listener.local_addr(), &key.to_string());
        tokio::select! {
            error = self.accept(server, known, &listener) => Err(error.into()),
            _ = interrupt.recv() => Ok(Exit::Success),
            _ = terminate.recv() => Ok(Exit::Success),
        }
    }

    /// Hands every session to what it is for, as its OPEN says.
    async fn accept(
        &self,
        server: Arc<Server>,
        grants: Grants,
        listener: &Listener,
    ) -> longhaul_session::Error {
        let meter = longhaul_perf::Server::new(longhaul_perf::Limits::default());
        let doctor = Arc::new(doctor::Answering::new(grants));
        loop {
            let session = match listener.accept().await {
                Ok(session) => session,
                Err(error) => return error,
            };
            let service = &session.info().service;
            if *service == Service::PERF {
                perf::answer(meter.clone(), session);
            } else if *service == Service::DOCTOR {
                let doctor = doctor.clone();
                tokio::spawn(async move { doctor.answer(session).await });
            } else {
                tokio::spawn(serve_session(server.clone(), session));
            }
        }
    }

    fn grants(&self) -> Result<Grants> {
        let mut grants = Grants::default();
        for grant in &self.read {
            grants.add(Access::Read, grant)?;
        }
        for grant in &self.write {
            grants.add(Access::Write, grant)?;
        }
        if let Some(file) = &self.grants {
            grants.add_file(file)?;
        }
        if grants.is_empty() {
            bail!(
                "nobody may do anything yet: name a key with --read, --write or --grants (a client's is shown by: longhaul keys show)"
            );
        }
        Ok(grants)
    }

    /// Tells where and who; the first lines of standard output, for a person or a program.
    fn announce(&self, addr: SocketAddr, key: &str) {
        let address = addr.to_string();
        let root = self.root.display().to_string();
        if self.json {
            answer::line(
                serde_json::json!({ "event": "listening", "address": address, "key": key, "root": root }),
            );
        } else {
            answer::line(format_args!("listening on {address}"));
            answer::line(format_args!("key {key}"));
            let host = answer::reachable(addr);
            eprintln!("longhaul: serving {root}; copy with: longhaul cp --host-key {key} FILE lh://{host}/");
        }
    }
}
