//! `longhaul`: copies files over long-haul networks, serves directories, relays sessions, measures
//! paths.

#![cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, reason = "commands that need Linux use it")
)]

use std::io::ErrorKind;
use std::process::ExitCode;
use std::time::Instant;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use longhaul_output::message;
use longhaul_proto::text::printable;

use crate::aliases::AliasError;
use crate::exit::{Exit, for_error, with_output};

#[cfg(target_os = "linux")]
mod account_helper;
mod account_workers;
mod accounts;
mod agent;
mod agent_client;
mod aliases;
mod answer;
#[cfg(target_os = "linux")]
mod circuits;
mod completion;
#[cfg(target_os = "linux")]
mod control;
mod controller;
mod copy_checks;
mod cp;
#[cfg(target_os = "linux")]
mod depot;
mod descriptors;
#[cfg(target_os = "linux")]
mod doctor;
mod exit;
mod failure;
mod files;
mod help;
mod hex;
mod home;
mod host_certificate;
mod job_submission;
mod jobs;
mod keys;
mod known_service;
mod leftovers;
#[cfg(any(test, not(target_os = "linux")))]
mod linux_only;
mod local_controller;
mod logging;
mod manual;
mod map;
mod metrics;
mod moment;
#[cfg(target_os = "linux")]
mod node;
mod of_path;
#[cfg(target_os = "linux")]
mod offramp;
#[cfg(target_os = "linux")]
mod onramp;
mod overlap;
mod perf;
mod place;
mod places;
mod plan_report;
mod principals;
mod process;
mod quantity;
mod quic;
mod report;
mod reservations;
mod reserve;
mod resume;
mod route;
#[cfg(target_os = "linux")]
mod router;
#[cfg(target_os = "linux")]
mod run;
mod runtime;
mod scitags;
mod serve;
mod server_options;
mod service;
mod ssh_options;
mod stop;
mod submit;
mod sum;
mod sync;
mod systemd;
mod target;
mod tls_service;
mod tokens;
mod trace;
mod tree;
mod trust;
mod ui;
mod verify;
mod watch;

#[cfg(not(target_os = "linux"))]
use linux_only::{account_helper, control, depot, doctor, node, offramp, onramp, router, run};

const AFTER_HELP: &str = "\
Exit status: 0 all done; 1 some files were not copied, or the server refused (doctor: something \
costs bandwidth); 2 the command line or a \
file it names is wrong; 3 no route led to the server; 4 a depot or the server does not let this \
key, or the server's key is not the \
expected one; 5 the copy or measurement broke off; \
6 the two sides disagree or do not understand each other; 130 interrupted.

Keys and known servers are kept in ~/.config/longhaul ($LONGHAUL_HOME, else \
$XDG_CONFIG_HOME/longhaul).";

// The allocator of musl takes one lock for all threads; statically linked programs use another.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Moves bulk data over long-haul networks, through depots where that is faster.
#[derive(Parser)]
#[command(name = "longhaul", version, after_help = AFTER_HELP)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Cp(cp::Cp),
    Sync(Box<sync::SyncCommand>),
    Route(route::RouteCommand),
    Trace(trace::TraceCommand),
    Controller(controller::ControllerCommand),
    Reserve(Box<reserve::ReserveCommand>),
    Reservations(reservations::Reservations),
    Ls(files::Ls),
    Stat(files::Stat),
    Du(files::du::Du),
    Find(Box<files::find::Find>),
    Cat(files::cat::Cat),
    Head(files::cat::Head),
    Sum(Box<sum::SumCommand>),
    Verify(Box<verify::VerifyCommand>),
    Mkdir(files::Mkdir),
    Mv(files::Mv),
    Rm(files::Rm),
    Leftovers(leftovers::Leftovers),
    Submit(Box<submit::Submit>),
    Jobs(jobs::JobsCommand),
    Job(jobs::JobCommand),
    Pause(jobs::Pause),
    Resume(jobs::Resume),
    Cancel(jobs::Cancel),
    Retry(jobs::Retry),
    Places(places::Places),
    Ui(ui::Ui),
    Agent(agent::AgentCommand),
    Control(Box<control::ControlCommand>),
    Map(map::MapCommand),
    Serve(serve::ServeCommand),
    ServeAccounts(account_helper::ServeAccounts),
    Depot(depot::DepotCommand),
    Router(router::Router),
    Offramp(offramp::OfframpCommand),
    Onramp(onramp::OnrampCommand),
    Node(node::NodeCommand),
    Run(run::RunCommand),
    Perf(perf::Perf),
    Keys(keys::Keys),
    Login(tokens::LoginCommand),
    Logout(tokens::LogoutCommand),
    Doctor(doctor::Doctor),
    Accounts(accounts::AccountsCommand),
    Completions(manual::Completions),
    Man(manual::Man),
    #[command(hide = true)]
    Reference(manual::Reference),
}

fn main() -> ExitCode {
    let started = Instant::now();
    if completion::answer(command) {
        return Exit::Success.into();
    }
    let translation = match aliases::translate(std::env::args_os().collect()) {
        Ok(translation) => translation,
        Err(AliasError::CommandLine(answer)) => return print_answer(&answer),
        Err(error) => {
            message!("{error}");
            return Exit::Usage.into();
        }
    };
    for note in &translation.notes {
        message!("{note}");
    }
    let matches = command().try_get_matches_from(translation.arguments);
    let arguments = match matches.and_then(|matches| Arguments::from_arg_matches(&matches)) {
        Ok(arguments) => arguments,
        Err(answer) => return print_answer(&answer),
    };
    // `run` must leave the program the limit that it was given.
    if !matches!(arguments.command, Command::Run(_)) {
        process::outlive_limits();
        raise_descriptor_limit();
    }
    let result = match arguments.command {
        Command::Cp(cp) => cp.run(started),
        Command::Sync(sync) => sync.run(started),
        Command::Route(route) => route.run(),
        Command::Trace(trace) => trace.run(),
        Command::Controller(controller) => controller.run(),
        Command::Reserve(reserve) => reserve.run(),
        Command::Reservations(reservations) => reservations.run(),
        Command::Ls(ls) => ls.run(),
        Command::Stat(stat) => stat.run(),
        Command::Du(du) => du.run(),
        Command::Find(find) => find.run(),
        Command::Cat(cat) => cat.run(),
        Command::Head(head) => head.run(),
        Command::Sum(sum) => sum.run(),
        Command::Verify(verify) => verify.run(),
        Command::Mkdir(mkdir) => mkdir.run(),
        Command::Mv(mv) => mv.run(),
        Command::Rm(rm) => rm.run(),
        Command::Leftovers(leftovers) => leftovers.run(),
        Command::Submit(submit) => submit.run(),
        Command::Jobs(jobs) => jobs.run(),
        Command::Job(job) => job.run(),
        Command::Pause(pause) => pause.run(),
        Command::Resume(resume) => resume.run(),
        Command::Cancel(cancel) => cancel.run(),
        Command::Retry(retry) => retry.run(),
        Command::Places(places) => places.run(),
        Command::Ui(ui) => ui.run(),
        Command::Agent(agent) => agent.run(),
        Command::Control(control) => control.run(),
        Command::Map(map) => map.run(),
        Command::Serve(serve) => serve.run(),
        Command::ServeAccounts(helper) => helper.run(),
        Command::Depot(depot) => depot.run(),
        Command::Router(router) => router.run(),
        Command::Offramp(offramp) => offramp.run(),
        Command::Onramp(onramp) => onramp.run(),
        Command::Node(node) => node.run(),
        Command::Run(run) => return run.run(),
        Command::Perf(perf) => perf.run(),
        Command::Keys(keys) => keys.run(),
        Command::Login(login) => login.run(),
        Command::Logout(logout) => logout.run(),
        Command::Doctor(doctor) => doctor.run(),
        Command::Accounts(accounts) => accounts.run(),
        Command::Completions(completions) => completions.run(),
        Command::Man(man) => man.run(command()),
        Command::Reference(reference) => reference.run(&command()),
    };
    let exit = match result {
        Ok(exit) => exit,
        Err(failure) => {
            // The error may quote a peer, a file or an argument.
            message!(
                "longhaul: {}",
                printable(failure::format_line(&failure).as_bytes())
            );
            for_error(&failure)
        }
    };
    with_output(exit, longhaul_output::stdout_error()).into()
}

/// Returns the command line that the program accepts, with its complete help.
fn command() -> clap::Command {
    help::complete(Arguments::command())
}

/// Prints the help, the version, or the error in the command line.
fn print_answer(answer: &clap::Error) -> ExitCode {
    match answer.print() {
        Err(error) if !answer.use_stderr() && error.kind() != ErrorKind::BrokenPipe => {
            with_output(Exit::Success, Some(error)).into()
        }
        _ => u8::try_from(answer.exit_code()).map_or(Exit::Usage.into(), ExitCode::from),
    }
}

/// Raises the limit on open descriptors. A copy holds one for every file under way, and a depot
/// several for every session; the low default is meant for programs that use `select`.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // If this fails, running out of descriptors is reported when it happens.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            ..limit
        },
    );
}
