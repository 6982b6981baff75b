//! Principals: the keys, names and groups that may use the controller.

use anyhow::Result;
use longhaul_control_api::principals::{Grant, PrincipalList};
use longhaul_control_client::percent_encode;
use longhaul_identity::PrincipalPattern;
use longhaul_proto::text::printable;

use crate::answer;
use crate::exit::Exit;
use crate::local_controller::{ControlClient, NO_BODY};

/// Grants a role.
pub fn grant(who: &PrincipalPattern, role: &str, name: Option<String>) -> Result<Exit> {
    let who = percent_encode(&who.to_string());
    let path = format!("/principals/{who}/roles/{}", percent_encode(role));
    let () = ControlClient::local()?.ask("PUT", &path, Some(&Grant { name }))?;
    Ok(Exit::Success)
}

/// Takes a role, or all of them.
pub fn revoke(who: &PrincipalPattern, role: Option<&str>) -> Result<Exit> {
    let role = role
        .map(|role| format!("/roles/{}", percent_encode(role)))
        .unwrap_or_default();
    let who = percent_encode(&who.to_string());
    let () = ControlClient::local()?.ask("DELETE", &format!("/principals/{who}{role}"), NO_BODY)?;
    Ok(Exit::Success)
}

/// Lists the principals.
pub fn list(json: bool) -> Result<Exit> {
    let list: PrincipalList = ControlClient::local()?.ask("GET", "/principals", NO_BODY)?;
    if json {
        answer::write_line(serde_json::to_string(&list)?);
        return Ok(Exit::Success);
    }
    if list.items.is_empty() {
        answer::write_line("no principals: longhaul control grant KEY ROLE adds one");
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
    answer::write_lines(lines);
    Ok(Exit::Success)
}
