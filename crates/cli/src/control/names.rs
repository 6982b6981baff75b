//! Names of depots, and the keys they belong to.

use anyhow::Result;
use longhaul_control_api::map::DepotNameList;
use longhaul_control_client::encoded;
use longhaul_proto::text::printable;

use super::ControlClient;
use super::client::NOTHING;
use crate::answer;
use crate::exit::Exit;

/// Lists the names.
pub fn list(json: bool) -> Result<Exit> {
    let list: DepotNameList = ControlClient::here()?.ask("GET", "/names", NOTHING)?;
    if json {
        answer::line(serde_json::to_string(&list)?);
        return Ok(Exit::Success);
    }
    let lengths = list.items.iter().map(|item| item.name.len());
    let width = lengths.max().unwrap_or_default();
    let lines = list.items.iter().map(|item| {
        let name = printable(item.name.as_bytes());
        format!("{name:width$}  {}", item.key)
    });
    answer::lines(lines);
    Ok(Exit::Success)
}

/// Releases a name.
pub fn release(name: &str) -> Result<Exit> {
    let path = format!("/names/{}", encoded(name));
    let () = ControlClient::here()?.ask("DELETE", &path, NOTHING)?;
    Ok(Exit::Success)
}
