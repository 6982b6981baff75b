//! `longhaul completions`, `longhaul man` and the hidden `longhaul reference`: shell completions,
//! manual pages and the book's command reference, generated from the command line's description.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::Shell;

use crate::exit::Exit;
use crate::{completion, home};

/// Print completions for a shell.
///
/// They complete options, files, hosts of ~/.ssh/config, known servers, places, paths on other
/// machines, and job numbers. The shell asks the installed program, so they stay up to date.
#[derive(Args)]
pub struct Completions {
    /// The shell.
    shell: Shell,
}

/// Write the manual pages, longhaul.1 and one for each command.
#[derive(Args)]
pub struct Man {
    /// The directory to write them into.
    #[arg(default_value = ".")]
    directory: PathBuf,
}

/// Print the command reference of the book, in Markdown.
#[derive(Args)]
pub struct Reference {}

impl Completions {
    /// Prints the completions.
    pub fn run(self) -> Result<Exit> {
        longhaul_output::print_bytes(&completion::script(self.shell)?);
        Ok(Exit::Success)
    }
}

impl Man {
    /// Writes the pages.
    pub fn run(self, command: Command) -> Result<Exit> {
        clap_mangen::generate_to(command, &self.directory).with_context(|| {
            format!("cannot write into {}", home::display_path(&self.directory))
        })?;
        Ok(Exit::Success)
    }
}

impl Reference {
    /// Prints the reference. Its headings begin at the second level, below the page's title.
    pub fn run(self, command: &Command) -> Result<Exit> {
        let options = clapdown::Options::new()
            .base_heading_level(2)
            .table_of_contents(true);
        // clapdown puts the parent's name before a usage that a command states itself.
        let text = clapdown::render(command, &options).replace("`longhaul longhaul ", "`longhaul ");
        longhaul_output::print_bytes(text.as_bytes());
        Ok(Exit::Success)
    }
}
