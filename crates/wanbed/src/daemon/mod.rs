//! The process of a lab. It holds the namespaces and the links, and answers on the control socket.
//! When it ends, so does the lab.
//!
//! It ends on `wanbed down`, on SIGTERM, SIGINT or SIGHUP. When attached, it also ends at the end
//! of its standard input, which comes even if the program that started it was killed.

pub(crate) mod build;
mod reaper;

pub use reaper::reap;

use std::io::{self, BufReader, Read};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::check;
use crate::control::{
    LabDescription, LabRequest, LabResponse, LaunchRequest, read_line, write_line,
};
use crate::error::{Error, Result, WhileDoing};
use crate::namespace::become_root_of_own_namespace;
use crate::place::{self, LabClaim};
use build::Running;

/// Time after which a silent client is disconnected.
const CLIENT_IO_TIMEOUT: Duration = Duration::from_secs(10);

/// Reason why the lab ends.
enum EndCause {
    /// No client waits for the last report.
    Quietly,
    /// This client waits for the last report.
    Asked(UnixStream),
}

/// Runs a lab whose description comes on standard input. Reports on standard output when it is up,
/// or why it is not. Must be called while the process has only one thread.
///
/// # Errors
/// Those that occur before the standard output is needed; the others are reported there.
pub fn run() -> Result<()> {
    // started by way of /proc/self/exe, it would be called "exe"
    let _ = rustix::thread::set_name(c"wanbed");
    let mut input = BufReader::new(io::stdin());
    let launch: LaunchRequest = read_line(&mut input).map_err(|problem| Error::Daemon {
        lab: "(new)".to_owned(),
        problem,
    })?;
    let (events, inbox) = channel();
    let started = start(&launch, &events);
    let answer = match &started {
        Ok((lab, _)) => LabResponse::Ok(lab.description()),
        Err(error) => LabResponse::Error::<LabDescription>(error.into()),
    };
    // If the program that started the lab is gone already, the lab would run on unseen.
    let answered = write_line(&mut io::stdout(), &answer);
    let (lab, _claim) = started?;
    answered.while_doing(|| format!("telling that lab {} is up", launch.name))?;
    if launch.attached {
        let events = events.clone();
        spawn("lifeline", move || {
            let _ = io::copy(&mut input.by_ref(), &mut io::sink());
            let _ = events.send(EndCause::Quietly);
        })?;
    }
    wait_and_end(lab, &inbox);
    Ok(())
}

fn start(launch: &LaunchRequest, events: &Sender<EndCause>) -> Result<(Arc<Running>, LabClaim)> {
    if !may_make_namespaces() {
        become_root_of_own_namespace()?;
    }
    let network = launch.scenario.resolve(&launch.overrides)?;
    let claim = LabClaim::new(&launch.base, &launch.name)?;
    let reaper = reaper::Reaper::start(&claim)?;
    let running = Running::build(launch, network, &claim.directory, reaper)?;
    let lab = Arc::new(running);
    let socket = place::socket(&claim.directory);
    let listener =
        UnixListener::bind(&socket).while_doing(|| format!("listening on {}", socket.display()))?;
    {
        let (lab, events) = (lab.clone(), events.clone());
        // One measurement at a time: two would measure each other.
        let probing = Arc::new(Mutex::new(()));
        spawn("control", move || {
            for stream in listener.incoming().flatten() {
                let (lab, events, probing) = (lab.clone(), events.clone(), probing.clone());
                let _ = spawn("client", move || serve(stream, &lab, &events, &probing));
            }
        })?;
    }
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP])
        .while_doing(|| "catching signals".to_owned())?;
    let events = events.clone();
    spawn("signals", move || {
        if signals.forever().next().is_some() {
            let _ = events.send(EndCause::Quietly);
        }
    })?;
    Ok((lab, claim))
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<()> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .while_doing(|| format!("starting the thread `{name}`"))?;
    Ok(())
}

/// Returns true if the process has CAP_SYS_ADMIN and CAP_NET_ADMIN in its namespace.
fn may_make_namespaces() -> bool {
    const NEEDED: u64 = 1 << 21 | 1 << 12;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .is_some_and(|caps| caps & NEEDED == NEEDED)
}

/// Answers one client. A client that goes away meanwhile is ignored.
fn serve(mut stream: UnixStream, lab: &Running, events: &Sender<EndCause>, probing: &Mutex<()>) {
    let _ = stream.set_read_timeout(Some(CLIENT_IO_TIMEOUT));
    let _ = stream.set_write_timeout(Some(CLIENT_IO_TIMEOUT));
    let question = read_line::<LabRequest>(&mut BufReader::new(&stream));
    let _ = match question {
        Err(problem) => write_line(&mut stream, &answer::<()>(Err(Error::Refused(problem)))),
        Ok(LabRequest::Describe) => write_line(&mut stream, &LabResponse::Ok(lab.description())),
        Ok(LabRequest::Links) => write_line(&mut stream, &answer(lab.report())),
        Ok(LabRequest::Check { link, forward }) => {
            let one_at_a_time = probing.lock();
            let found = check::measure(lab, link, forward);
            drop(one_at_a_time);
            write_line(&mut stream, &answer(found))
        }
        Ok(LabRequest::Down) => {
            let _ = events.send(EndCause::Asked(stream));
            Ok(())
        }
    };
}

fn answer<T>(result: Result<T>) -> LabResponse<T> {
    match result {
        Ok(value) => LabResponse::Ok(value),
        Err(error) => LabResponse::Error((&error).into()),
    }
}

fn wait_and_end(lab: Arc<Running>, inbox: &Receiver<EndCause>) {
    let end = inbox.recv().unwrap_or(EndCause::Quietly);
    if let EndCause::Asked(mut stream) = end {
        let _ = write_line(&mut stream, &answer(lab.report()));
    }
    // Returning ends the process with its links and namespaces; the reaper does the rest.
}
