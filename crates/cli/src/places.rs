//! `longhaul places`: names for ends of copies, for the agent and its web page.

use anyhow::Result;
use clap::{Args, Subcommand};
use longhaul_agent::http::{PlaceList, PlaceTest};
use longhaul_agent::places::Place;
use longhaul_control_client::percent_encode;
use longhaul_proto::text::printable;
use serde_json::json;

use crate::agent_client::{AgentClient, AgentOptions, run_in_runtime};
use crate::exit::Exit;
use crate::{answer, logging};

/// Name the ends of copies: a server, a host where you can log in, a directory.
#[derive(Args)]
pub struct Places {
    #[command(subcommand)]
    command: Option<PlaceCommand>,
    /// Print one JSON object per line for each.
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    agent: AgentOptions,
}

#[derive(Subcommand)]
enum PlaceCommand {
    /// List them.
    List,
    /// Give a place a name, or change the place of a name.
    Add {
        /// The name.
        name: String,
        /// The root of the place: /path/, user@host: or user@host:path/, lh://host[:port]/path/.
        root: String,
    },
    /// Remove a name; what is there stays.
    Remove {
        /// The name.
        name: String,
    },
    /// Try to reach a place, and print what is wrong if that fails.
    Test {
        /// The name.
        name: String,
    },
}

impl Places {
    /// Runs the command.
    pub fn run(self) -> Result<Exit> {
        logging::start("error");
        run_in_runtime(async {
            let agent = AgentClient::for_running_agent(&self.agent).await?;
            match &self.command {
                None | Some(PlaceCommand::List) => {
                    let list: PlaceList = agent.ask("GET", "/places", None, None).await?;
                    list.items.iter().for_each(|place| self.show(place));
                }
                Some(PlaceCommand::Add { name, root }) => {
                    let path = format!("/places/{}", percent_encode(name));
                    let place: Place = agent
                        .ask("PUT", &path, Some(&json!({ "root": root })), None)
                        .await?;
                    self.show(&place);
                }
                Some(PlaceCommand::Remove { name }) => {
                    let () = agent
                        .ask(
                            "DELETE",
                            &format!("/places/{}", percent_encode(name)),
                            None,
                            None,
                        )
                        .await?;
                }
                Some(PlaceCommand::Test { name }) => {
                    let path = format!("/places/{}/test", percent_encode(name));
                    let test: PlaceTest = agent.ask("POST", &path, None, None).await?;
                    match self.json {
                        true => answer::write_line(serde_json::to_string(&test)?),
                        false => answer::write_line(format!(
                            "{name}: {}",
                            printable(test.detail.as_bytes())
                        )),
                    }
                    if !test.ok {
                        return Ok(Exit::NoRoute);
                    }
                }
            }
            Ok(Exit::Success)
        })
    }

    fn show(&self, place: &Place) {
        match self.json {
            true => answer::write_line(json!(place)),
            false => answer::write_line(format!(
                "{:<20} {}",
                place.name,
                printable(place.root.as_bytes())
            )),
        }
    }
}
