//! `longhaul agent`: the resident program that makes copies in the background.

mod assets;
mod browse;
mod elsewhere;
mod install;

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use longhaul_agent::agent::CopyProgram;
use longhaul_agent::http::Web;
use longhaul_agent::jobs::JobLimits;
use longhaul_agent::notice::Receiver;
use longhaul_agent::places::Place;
use longhaul_agent::{Agent, AgentSettings, JobStore, http};
use longhaul_api::access::BearerToken;
use longhaul_api::{LocalGate, listen};
use longhaul_service::{StatusListener, StatusPage};
use longhaul_session::Identity;
use rustix::fs::{FlockOperation, flock};
use serde_json::json;
use tokio::net::UnixListener;
use tokio::sync::watch;

use crate::agent_client::{agent_dir, run_in_runtime, socket};
use crate::exit::Exit;
use crate::failure::format_line;
use crate::logging::LogOptions;
use crate::service::{Announcement, ServicePlan, StartedService, StopReceiver, run_alone};
use crate::stop::StopSignals;
use crate::{cp, home, tls_service};

/// Longest path of a Unix socket that the system accepts, in bytes.
const MAX_SOCKET_PATH_BYTES: usize = 107;

/// Run the agent: it makes copies in the background, as `longhaul submit` asks for them.
///
/// It serves one user, over a socket that nobody else can open. Jobs are kept in a file of that
/// user's, or with --store in PostgreSQL, where any number of agents on any number of hosts take
/// them from one queue. However an agent ends, its jobs resume when it, or another agent of the
/// same store, runs again. `longhaul submit` starts it by itself.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct AgentCommand {
    #[command(subcommand)]
    action: Option<Action>,
    /// PostgreSQL to keep jobs in, as postgres://user@host/name (also $LONGHAUL_STORE; put a
    /// password into that or into ~/.pgpass) [default: a file].
    #[arg(
        long,
        value_name = "URL",
        env = "LONGHAUL_STORE",
        hide_env_values = true
    )]
    store: Option<String>,
    /// Maximum simultaneous jobs of this agent.
    #[arg(long, value_name = "N", default_value_t = 4)]
    max_jobs: usize,
    /// Maximum simultaneous jobs to or from one far host, over all agents of the store.
    #[arg(long, value_name = "N", default_value_t = 2)]
    max_jobs_per_place: usize,
    /// Maximum simultaneous jobs of one user, over all agents of the store [default: as many as
    /// there is room for].
    #[arg(long, value_name = "N")]
    max_jobs_per_user: Option<usize>,
    /// Serve HTTP at this loopback address too, for clients that present the token (in the file
    /// `token` of the agent's directory); with --authorized-keys at any address, by TLS, and for
    /// those keys instead [default: the socket only].
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    elsewhere: elsewhere::RemoteAccessOptions,
    /// Report the end of a job that names no URL itself to this http or https URL
    /// (`longhaul submit --on-end-url`).
    #[arg(long, value_name = "URL", value_parser = parse_notice_url)]
    on_end_url: Option<String>,
    /// The agent's name for other agents and people [default: this host's name].
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// Days for which ended jobs are kept.
    #[arg(long, value_name = "DAYS", default_value_t = 90)]
    history: u32,
    /// Address of the OpenMetrics page [default: none]. Anyone who can connect there can read it.
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
    /// Print one JSON object on standard output when ready, with the addresses it listens at.
    #[arg(long)]
    json: bool,
    /// Detach from the terminal that it was started from.
    #[arg(long, hide = true)]
    detach: bool,
    #[command(flatten)]
    log: LogOptions,
}

#[derive(Subcommand)]
enum Action {
    /// Write a systemd unit that runs the agent for this user, and print how to start it.
    Install,
}

impl AgentCommand {
    /// Runs until told to stop.
    pub fn run(self) -> Result<Exit> {
        if let Some(Action::Install) = self.action {
            return install::install();
        }
        self.log.start("info");
        if self.detach {
            // It fails only for the leader of a process group, which has left its terminal already.
            let _ = rustix::process::setsid();
        }
        let prepared = PreparedAgent::new()?;
        // On one thread: it waits for the store and for child processes, and the children end with
        // the thread that started them.
        run_in_runtime(async {
            // An agent that serves keys reads its files again at SIGHUP.
            let signals = match self.elsewhere.is_enabled() {
                true => StopSignals::take()?,
                false => StopSignals::take_with_hangup()?,
            };
            run_alone(signals, None, self.json, |stop| self.start(&prepared, stop)).await
        })?;
        Ok(Exit::Success)
    }

    /// Returns what it would use.
    pub fn plan(&self) -> ServicePlan {
        let mut plan = ServicePlan::default();
        plan.listen("HTTP", self.listen.as_slice(), None);
        plan.listen("metrics", self.metrics.as_slice(), None);
        match agent_dir() {
            Ok(dir) => plan
                .facts
                .push(format!("directory {}", home::display_path(&dir))),
            Err(error) => plan.faults.push(format_line(&error)),
        }
        plan
    }

    /// Opens the store and the listeners, and returns how it runs.
    pub async fn start(
        self,
        prepared: &PreparedAgent,
        stop: StopReceiver,
    ) -> Result<StartedService> {
        let dir = prepared.dir.as_path();
        let store = match &self.store {
            Some(url) => JobStore::postgres(url).await?,
            None => JobStore::sqlite(&dir.join("jobs.sqlite")).await?,
        };
        let identity = own_identity(dir)?;
        let agent = Agent::new(store, self.settings(dir, &identity)?);
        let uid = rustix::process::getuid().as_raw();
        let gate = |token| LocalGate {
            uid,
            user: user_name(uid),
            token,
            sessions: Arc::default(),
        };
        let socket = socket(dir);
        let unix = listen_at(&socket)?;
        // It also ends when one of its listeners fails.
        let (stop_all, stopped) = watch::channel(false);
        // Loopback listeners, and listeners that authenticate keys.
        let (here, elsewhere) = match self.elsewhere.is_enabled() {
            true => (None, self.listen),
            false => (self.listen, None),
        };
        let token = match here {
            None => None,
            Some(_) => {
                let (token, file) = (BearerToken::random()?, dir.join("token"));
                token
                    .save(&file)
                    .with_context(|| format!("cannot write {}", home::display_path(&file)))?;
                Some(token)
            }
        };
        let web = Web::new(agent.clone(), gate(token), stopped.clone());
        let http = match here {
            None => None,
            Some(address) => Some(web.listen_at(address).await?),
        };
        let router = http::router(agent.clone(), gate(None), Some(web), stopped.clone());
        let mut served = tokio::task::JoinSet::new();
        let keyed = match elsewhere {
            None => None,
            Some(address) => {
                let serve = self.elsewhere.serve(
                    &agent,
                    dir,
                    &identity,
                    address,
                    stopped.clone(),
                    &mut served,
                );
                Some(serve.await?)
            }
        };
        served.spawn(listen::serve(unix, router, stopped.clone()));
        let status = self.metrics.map(StatusListener::open).transpose()?;
        let addresses = [http, keyed, status.as_ref().map(StatusListener::local_addr)];
        let announcement = announcement(agent.settings(), &socket, addresses);
        let (metrics, readiness) = (agent.metrics(), stop.readiness());
        let status = status.map(|listener| {
            let page = StatusPage::new(metrics.clone(), readiness.clone());
            tokio::spawn(listener.serve(page))
        });
        let work = async move {
            let work = {
                let (agent, stopped) = (agent.clone(), stopped.clone());
                tokio::spawn(async move { agent.run(stopped).await })
            };
            let failed = tokio::select! {
                () = stop.wait() => None,
                ended = served.join_next() => ended,
            };
            stop_all.send_replace(true);
            work.await.context("the agent failed")?;
            while served.join_next().await.is_some() {}
            if let Some(status) = status {
                status.abort();
            }
            // By the time this process has ended, the socket may belong to another agent.
            let _ = std::fs::remove_file(&socket);
            match failed {
                Some(Ok(Err(error))) => Err(error).context("cannot keep listening"),
                Some(Err(error)) => Err(error).context("cannot keep listening"),
                _ => Ok(()),
            }
        };
        Ok(StartedService {
            announcement,
            metrics: Some(metrics),
            readiness,
            work: Box::pin(work),
        })
    }

    fn settings(&self, dir: &Path, identity: &Identity) -> Result<AgentSettings> {
        let file = std::env::current_exe().context("cannot find this program's file")?;
        let own = std::process::id().to_string();
        let patience = cp::ATTEMPT_PATIENCE.0.as_secs().to_string();
        let arguments = [
            "cp",
            "--json",
            "-B",
            "--parent",
            &own,
            "--patience",
            &patience,
        ];
        Ok(AgentSettings {
            name: self.name.clone().unwrap_or_else(tls_service::host_name),
            instance: instance_id(dir)?,
            program: CopyProgram {
                file,
                arguments: arguments.map(str::to_owned).to_vec(),
            },
            limits: JobLimits {
                in_all: self.max_jobs,
                per_place: self.max_jobs_per_place,
                per_user: self.max_jobs_per_user,
            },
            history: Duration::from_secs(u64::from(self.history) * 24 * 3600),
            places: builtin_places(),
            assets: assets::ASSETS,
            on_end_url: self.on_end_url.clone(),
            key: identity.signing_key().clone(),
            browse: Arc::new(browse::PlaceBrowser::default()),
            check: cp::check_request,
        })
    }
}

/// Directory of the agent, which no other process uses meanwhile.
pub struct PreparedAgent {
    dir: PathBuf,
    /// While this lock is held, no other agent can run here.
    _lock: File,
}

impl PreparedAgent {
    /// Makes this process the agent of its user, and detaches it from standard input.
    pub fn new() -> Result<Self> {
        // Nobody can answer a prompt.
        let nothing = File::open("/dev/null").context("cannot open /dev/null")?;
        rustix::stdio::dup2_stdin(&nothing).context("cannot detach standard input")?;
        let dir = agent_dir()?;
        home::make_private(&dir)?;
        let busy = "an agent is running already: longhaul jobs lists its jobs";
        Ok(Self {
            _lock: lock(&dir, busy)?,
            dir,
        })
    }
}

fn announcement(
    settings: &AgentSettings,
    socket: &Path,
    addresses: [Option<SocketAddr>; 3],
) -> Announcement {
    let (name, socket) = (&settings.name, home::display_path(socket));
    let key = settings.key.public().to_string();
    let mut lines = vec![format!("agent {name} is ready at {socket}")];
    let [http, https, metrics] =
        addresses.map(|address| address.map(|address| address.to_string()));
    if let Some(address) = &http {
        lines.push(format!(
            "HTTP at http://{address}, for requests with the token"
        ));
    }
    if let Some(address) = &https {
        lines.push(format!(
            "HTTP at https://{address}, for authorized keys; its own key is {key}"
        ));
    }
    lines.extend(
        metrics
            .iter()
            .map(|at| format!("metrics on http://{at}/metrics")),
    );
    Announcement {
        json: json!({
            "event": "ready", "name": name, "socket": socket, "http": http, "https": https,
            "key": key, "metrics": metrics
        }),
        lines,
        hint: None,
    }
}

/// Checks a URL that notices of ended jobs can be sent to.
fn parse_notice_url(url: &str) -> Result<String, String> {
    match Receiver::parse(url) {
        Some(_) => Ok(url.to_owned()),
        None => Err("not an http or https URL, or one with a user name or password".to_owned()),
    }
}

/// Loads the service key in this directory, and makes it when it is first needed.
pub fn own_identity(dir: &Path) -> Result<Identity> {
    let file = dir.join("identity");
    match file.exists() {
        true => Ok(Identity::load(&file)?),
        false => Ok(Identity::create(&file)?),
    }
}

/// Listens at a Unix socket for clients on this machine.
pub fn listen_at(path: &Path) -> Result<UnixListener> {
    if path.as_os_str().len() > MAX_SOCKET_PATH_BYTES {
        bail!(
            "{}: too long for a socket: set LONGHAUL_STATE to a shorter directory",
            home::display_path(path)
        );
    }
    Ok(listen::unix(path)?)
}

/// Makes this process the only one of its kind for the directory. If another runs, the error is
/// `busy`, which names it and says what to do.
pub fn lock(dir: &Path, busy: &str) -> Result<File> {
    let path: PathBuf = dir.join("lock");
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path);
    let file = file.with_context(|| format!("cannot open {}", home::display_path(&path)))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            // The process number is for people who look for it.
            file.set_len(0)?;
            writeln!(&file, "{}", std::process::id())?;
            Ok(file)
        }
        Err(rustix::io::Errno::WOULDBLOCK) => {
            bail!("{busy} ({})", home::display_path(dir))
        }
        Err(error) => {
            Err(error).with_context(|| format!("cannot lock {}", home::display_path(&path)))
        }
    }
}

/// Returns the identifier of the agent of this directory, unique among agents. It lasts as long as
/// the directory.
fn instance_id(dir: &Path) -> Result<String> {
    let path = dir.join("instance");
    match std::fs::read_to_string(&path) {
        Ok(instance) if !instance.trim().is_empty() => Ok(instance.trim().to_owned()),
        _ => {
            let instance = BearerToken::random()?;
            instance
                .save(&path)
                .with_context(|| format!("cannot write {}", home::display_path(&path)))?;
            Ok(instance.text().to_owned())
        }
    }
}

/// Returns the built-in places: the user's own directory, and all of this machine.
fn builtin_places() -> Vec<Place> {
    let place = |name: &str, root: String| Place {
        name: name.to_owned(),
        root,
        builtin: true,
    };
    let home = std::env::var("HOME")
        .ok()
        .filter(|home| home.starts_with('/'));
    let home = home.map(|home| place("home", format!("{}/", home.trim_end_matches('/'))));
    home.into_iter()
        .chain([place("this machine", "/".to_owned())])
        .collect()
}

/// Returns the user's name as the system has it, or else the number.
pub fn user_name(uid: u32) -> String {
    let name = uzers::get_user_by_uid(uid).map(|user| user.name().to_string_lossy().into_owned());
    name.unwrap_or_else(|| uid.to_string())
}
