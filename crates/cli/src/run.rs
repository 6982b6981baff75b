//! `longhaul run`: runs an unmodified program with its connections on routes.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;
use longhaul_onramp::PathShares;
use longhaul_output::message;
use longhaul_preload::launch::{self, UnsuitableProgram};
use longhaul_preload::settings;
use longhaul_proto::text::{is_printable, printable};
use longhaul_ramp_protocol::{MAX_PURPOSE_BYTES, SOCKET_VARIABLE};
use quantities::{ByteCount, Rate, Time};

use crate::{failure, quantity};

mod isolated;

/// Exit code when `longhaul run` itself fails, as for `env`, `nice` and `timeout`.
const FAILED_EXIT_CODE: u8 = 125;
/// Environment variable with the path of the preload object, if it is not beside this program.
const OBJECT_VARIABLE: &str = "LONGHAUL_PRELOAD";

const STARTER: launch::Starter = launch::Starter {
    name: "longhaul",
    instead: "run it with --isolate, give it the on-ramp as its SOCKS or HTTP proxy, or run a \
        dynamically linked build",
};

const AFTER_HELP: &str = "\
Exit status: the program's, or 128 and the number of the signal that ended it; 125 if longhaul \
itself fails, 126 if the program cannot be run so, \
127 if there is none.";

/// Run a program with its connections on routes.
///
/// The program needs no change: a connection uses the route that routes.toml names for its
/// destination, and is direct without one. Routes are provided by the on-ramp of this machine; if
/// it does not run, one is started for as long as the program runs.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct RunCommand {
    /// Purpose of its connections, reported to the depots.
    #[arg(long, value_name = "TEXT", value_parser = purpose)]
    purpose: Option<String>,
    /// Size of each connection, such as 10G.
    #[arg(long, value_name = "BYTES", value_parser = quantity::positive_bytes)]
    size: Option<ByteCount>,
    /// Desired rate of each connection, such as 500M.
    #[arg(long, value_name = "R", value_parser = quantity::positive_rate)]
    rate: Option<Rate>,
    /// Maximum duration of each connection, such as 2h.
    #[arg(long = "for", value_name = "DURATION", value_parser = quantity::positive_time)]
    duration: Option<Time>,
    /// Without a route or an on-ramp, refuse the connection (ENETUNREACH) instead of connecting
    /// directly.
    #[arg(long)]
    closed: bool,
    /// Right-size its direct connections too, as `drs run` does.
    #[arg(long)]
    right_size: bool,
    /// Run it in a network namespace of its own, with nothing preloaded: for programs that are
    /// statically linked or make their system calls themselves (Go, io_uring).
    #[arg(long, conflicts_with = "right_size")]
    isolate: bool,
    /// The file of routes, for an on-ramp of its own, whether or not one runs [default: that of the
    /// running on-ramp, else routes.toml where keys are kept].
    #[arg(long, value_name = "FILE")]
    routes: Option<PathBuf>,
    /// Spread its direct connections over the paths of this reservation, by source port, if they
    /// lead to the reservation's destination. It gets an on-ramp of its own.
    #[arg(long, value_name = "ID")]
    reservation: Option<u64>,
    /// Number of connections on each path of the reservation: `rate`, in proportion to what each
    /// carries; `even`; or a share for each path, such as 70:30 [default: rate].
    #[arg(long, value_name = "HOW", requires = "reservation")]
    spread: Option<PathShares>,
    /// The program and its arguments, after `--`.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    program: Vec<OsString>,
}

fn purpose(text: &str) -> Result<String, String> {
    match text.len() {
        0 => Err("give a purpose, or leave it out".to_owned()),
        _ if !text.chars().all(is_printable) => Err("unprintable characters".to_owned()),
        1..=MAX_PURPOSE_BYTES => Ok(text.to_owned()),
        _ => Err(format!("at most {MAX_PURPOSE_BYTES} bytes")),
    }
}

impl RunCommand {
    /// Runs the program, or prints in one line why it could not.
    pub fn run(self) -> ExitCode {
        match self.start() {
            Ok(code) => ExitCode::from(code),
            Err(error) => {
                message!(
                    "longhaul: {}",
                    printable(failure::format_line(&error).as_bytes())
                );
                let unfit = error
                    .downcast_ref::<UnsuitableProgram>()
                    .map(UnsuitableProgram::exit_code);
                ExitCode::from(unfit.unwrap_or(FAILED_EXIT_CODE))
            }
        }
    }

    fn start(self) -> Result<u8> {
        let mut words = self.program.iter();
        let name = words.next().context("name a program to run")?;
        if self.isolate {
            return isolated::start(&self, name);
        }
        let path = launch::find_program(name, STARTER)?;
        let object = launch::find_object(OBJECT_VARIABLE)?;
        let mut command = Command::new(&path);
        command.arg0(name).args(words);
        command.env("LD_PRELOAD", launch::ld_preload(&object));
        let (name, filters) = launch::inherited_filters();
        command.env(name, filters);
        self.set_environment(&mut command);
        let not_started = |error| UnsuitableProgram::NotExecutable(path.clone(), error);
        if let Some(socket) = self.onramp_to_use() {
            command.env(SOCKET_VARIABLE, socket);
            return Err(not_started(command.exec()).into());
        }
        let onramp = OwnOnramp::start(&self)?;
        command.env(SOCKET_VARIABLE, &onramp.socket);
        let signals = launch::SignalForwarder::begin().context("cannot handle signals")?;
        let child = command.spawn().map_err(not_started)?;
        let status = signals.wait(child).context("cannot wait for the program")?;
        onramp.end();
        Ok(launch::exit_code(status))
    }

    /// Returns the socket of the on-ramp to use, if it runs already.
    fn onramp_to_use(&self) -> Option<PathBuf> {
        match (&self.routes, self.reservation) {
            (None, None) => running_onramp(),
            _ => None,
        }
    }

    /// Passes the options to the program in environment variables.
    fn set_environment(&self, command: &mut Command) {
        let mode = if self.closed { "closed" } else { "open" };
        command.env(settings::ROUTES_VARIABLE, mode);
        if self.right_size {
            command.env("DRS_MODE", "auto");
        }
        let mut wish = |name: &str, value: Option<String>| {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        };
        wish(settings::PURPOSE_VARIABLE, self.purpose.clone());
        wish(
            settings::SIZE_VARIABLE,
            self.size.map(|size| size.0.to_string()),
        );
        wish(
            settings::RATE_VARIABLE,
            self.rate
                .map(|rate| format!("{:.0}", rate.bits_per_second())),
        );
        wish(
            settings::DURATION_VARIABLE,
            self.duration.map(|time| seconds(time).to_string()),
        );
    }
}

/// Returns whole seconds, rounded up.
fn seconds(time: Time) -> u64 {
    time.0.as_secs() + u64::from(time.0.subsec_nanos() > 0)
}

/// Returns the socket of the running on-ramp, if one runs.
fn running_onramp() -> Option<PathBuf> {
    let path = crate::onramp::configured_socket().ok()?;
    longhaul_onramp::has_listener(&path).then_some(path)
}

/// An on-ramp for one program. Its socket is in a directory of its own, and it ends with this
/// process.
struct OwnOnramp {
    child: Child,
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

impl OwnOnramp {
    fn start(run: &RunCommand) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("longhaul-run-")
            .permissions(std::fs::Permissions::from_mode(0o700))
            .tempdir()
            .context("cannot make a directory for the on-ramp: see TMPDIR")?;
        let socket = folder.path().join("socket");
        let own = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(own);
        command.args(["onramp", "--json", "--socket"]).arg(&socket);
        if let Some(routes) = &run.routes {
            command.arg("--routes").arg(routes);
        }
        if let Some(id) = run.reservation {
            command.args(["--reservation", &id.to_string()]);
        }
        if let Some(shares) = &run.spread {
            command.args(["--spread", &shares.to_string()]);
        }
        command
            // Its notices are not the program's output; errors are still reported.
            .env(
                "RUST_LOG",
                std::env::var_os("RUST_LOG").unwrap_or_else(|| "warn".into()),
            )
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // Signals from the terminal are for the program.
            .process_group(0);
        end_with_this_process(&mut command);
        let mut child = command.spawn().context("cannot start an on-ramp")?;
        let mut ready = String::new();
        if let Some(output) = child.stdout.take() {
            // It prints one line when it listens; an incomplete line means that it ended.
            let _ = BufReader::new(output).read_line(&mut ready);
        }
        if !ready.ends_with('\n') {
            let status = child.wait().context("cannot wait for the on-ramp")?;
            if let Some(id) = run.reservation {
                bail!(
                    "the program was not run: the on-ramp that would use reservation {id} ended \
                     ({status})"
                );
            }
            bail!(
                "no on-ramp runs, and the one that was started ended ({status}): try longhaul \
                 onramp by itself"
            );
        }
        Ok(Self {
            child,
            socket,
            _folder: folder,
        })
    }

    /// Lets it finish what the program has left to it, and ends it.
    fn end(mut self) {
        let number = i32::try_from(self.child.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        if let Some(number) = number {
            let _ = rustix::process::kill_process(number, rustix::process::Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

/// Has a child terminated when this process ends for any reason.
#[allow(unsafe_code)] // nothing else runs in the child before it is another program
fn end_with_this_process(command: &mut Command) {
    let signal = Some(rustix::process::Signal::TERM);
    // SAFETY: one system call, which is all that is done between fork and exec; it takes no lock
    // and allocates nothing.
    unsafe {
        command.pre_exec(move || Ok(rustix::process::set_parent_process_death_signal(signal)?));
    }
}
