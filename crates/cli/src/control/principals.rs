//! Principals: the keys that may use the controller.

use anyhow::Result;
use longhaul_control_api::principals::{Grant, PrincipalList};
use longhaul_control_client::encoded;
use longhaul_proto::PublicKey;
use longhaul_proto::text::printable;

use super::ControlClient;
use super::client::NOTHING;
use crate::answer;
use crate::exit::Exit;

/// Grants a role.
pub fn grant(key: &PublicKey, role: &str, name: Option<String>) -> Result<Exit> {
    let path = format!("/principals/{key}/roles/{}", encoded(role));
    let () = ControlClient::here()?.ask("PUT", &path, Some(&Grant { name }))?;
    Ok(Exit::Success)
}

/// Takes a role, or all of them.
pub fn revoke(key: &PublicKey, role: Option<&str>) -> Result<Exit> {
    let role = role
        .map(|role| format!("/roles/{}", encoded(role)))
        .unwrap_or_default();
    let () = ControlClient::here()?.ask("DELETE", &format!("/principals/{key}{role}"), NOTHING)?;
    Ok(Exit::Success)
}

/// Lists the principals.
pub fn list(json: bool) -> Result<Exit> {
    let list: PrincipalList = ControlClient::here()?.ask("GET", "/principals", NOTHING)?;
    if json {
        answer::line(serde_json::to_string(&list)?);
        return Ok(Exit::Success);
    }
    let wide = list
        .items
        .iter()
        .map(|item| item.name.len())
        .max()
        .unwrap_or_default();
    let lines = list.items.iter().map(|item| {
        let name = printable(item.name.as_bytes());
        format!("{name:wide$}  {}  {}", item.key, item.roles.join(" "))
    });
    answer::lines(lines);
    Ok(Exit::Success)
}
