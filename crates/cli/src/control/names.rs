//! Names of depots, and the keys they belong to.

use anyhow::Result;
use longhaul_control_api::map::DepotNameList;
use longhaul_control_client::percent_encode;
use longhaul_proto::text::printable;

use crate::answer;
use crate::exit::Exit;
use crate::local_controller::{ControlClient, NO_BODY};

/// Lists the names.
pub fn list(json: bool) -> Result<Exit> {
    let list: DepotNameList = ControlClient::local()?.ask("GET", "/names", NO_BODY)?;
    if json {
        answer::write_line(serde_json::to_string(&list)?);
        return Ok(Exit::Success);
    }
    if list.items.is_empty() {
        answer::write_line("no depot has registered a name");
        return Ok(Exit::Success);
    }
    let lengths = list.items.iter().map(|item| item.name.len());
    let width = lengths.max().unwrap_or_default();
    let lines = list.items.iter().map(|item| {
        let name = printable(item.name.as_bytes());
        format!("{name:width$}  {}", item.key)
    });
    answer::write_lines(lines);
    Ok(Exit::Success)
}

/// Releases a name.
pub fn release(name: &str) -> Result<Exit> {
    let path = format!("/names/{}", percent_encode(name));
    let () = ControlClient::local()?.ask("DELETE", &path, NO_BODY)?;
    Ok(Exit::Success)
}
