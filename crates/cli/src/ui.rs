//! `longhaul ui`: opens the agent's page in a browser.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use clap::Args;
use longhaul_agent::http::PageAddress;

use crate::agent_client::{AgentClient, AgentOptions, agent_dir, run_in_runtime};
use crate::exit::Exit;
use crate::{answer, home, logging};

/// Program that opens a file as its user wishes.
const OPENER: &str = match cfg!(target_vendor = "apple") {
    true => "open",
    false => "xdg-open",
};

/// Open the agent's page in a browser: two panes with files of any place, and the jobs.
///
/// The agent is started if it does not run. It serves the page to this machine only, and only if
/// this command opened it: its address holds a ticket that is good once, and for a minute.
#[derive(Args)]
pub struct Ui {
    /// Print the address and open nothing: for a browser elsewhere, through ssh -L.
    #[arg(long)]
    print: bool,
}

impl Ui {
    /// Opens the page.
    pub fn run(self) -> Result<Exit> {
        logging::start("error");
        run_in_runtime(async {
            let agent = AgentClient::for_running_agent(&AgentOptions::default()).await?;
            let page: PageAddress = agent.ask("POST", "/tickets", None, None).await?;
            if self.print {
                answer::write_line(&page.url);
                return Ok(Exit::Success);
            }
            let file = write_redirect(&page.url, &agent_dir()?)?;
            match open(&file) {
                true => answer::write_line("opened in the browser"),
                false => {
                    answer::write_line(format!(
                        "no browser was found ({OPENER}, or $BROWSER); within a minute, open"
                    ));
                    answer::write_line(&page.url);
                }
            }
            Ok(Exit::Success)
        })
    }
}

/// Writes a file that redirects a browser to the page. On a command line, the address would be
/// visible to everyone who lists processes.
fn write_redirect(url: &str, dir: &Path) -> Result<PathBuf> {
    let file = dir.join("open.html");
    let _ = std::fs::remove_file(&file);
    let written = || -> std::io::Result<()> {
        let mut new = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&file)?;
        // The characters of an address have no special meaning in HTML.
        writeln!(
            new,
            "<!doctype html><meta http-equiv=\"refresh\" content=\"0; url={url}\">"
        )
    };
    written().with_context(|| format!("cannot write {}", home::display_path(&file)))?;
    Ok(file)
}

/// Opens the file in a browser. Returns true if one could be started.
fn open(file: &Path) -> bool {
    let browser = std::env::var_os("BROWSER").filter(|browser| !browser.is_empty());
    let program = browser.unwrap_or_else(|| OPENER.into());
    let started = Command::new(program)
        .arg(file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    started.is_ok_and(|status| status.success())
}
