//! Logins of web servers: from the environment, or `~/.netrc`.

use std::path::PathBuf;

use netrc_rs::{Machine, Netrc};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};

use crate::error::Error;
use crate::location::EndpointPath;

/// Maximum size of a netrc file, in bytes.
const MAX_NETRC_BYTES: usize = 1 << 20;

/// Returns the header that authenticates at a web server. It is empty if no login is known.
///
/// # Errors
/// [`Error::Settings`].
pub(crate) fn headers(path: &EndpointPath) -> Result<HeaderMap, Error> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let header = if let Some(token) = variable("LONGHAUL_HTTP_TOKEN") {
        Some(("LONGHAUL_HTTP_TOKEN".to_owned(), format!("Bearer {token}")))
    } else if let Some(user) = variable("LONGHAUL_HTTP_USER") {
        let password = variable("LONGHAUL_HTTP_PASSWORD").unwrap_or_default();
        Some(("LONGHAUL_HTTP_USER".to_owned(), basic(&user, &password)))
    } else {
        from_netrc(path)?
    };
    let mut headers = HeaderMap::new();
    if let Some((what, header)) = header {
        let value = HeaderValue::from_str(&header).map_err(|_| Error::Settings {
            place: path.place(),
            what,
            reason: "a character that HTTP does not allow".to_owned(),
        });
        let mut value = value?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(headers)
}

/// Returns the file and the header, if it has a login of the host.
fn from_netrc(path: &EndpointPath) -> Result<Option<(String, String)>, Error> {
    let named = std::env::var_os("NETRC").map(PathBuf::from);
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".netrc"));
    let Some(file) = named.or_else(home) else {
        return Ok(None);
    };
    let shown = file.display().to_string();
    let failed = |reason: String| Error::Settings {
        place: path.place(),
        what: shown.clone(),
        reason,
    };
    let text = match std::fs::read_to_string(&file) {
        Ok(text) if text.len() <= MAX_NETRC_BYTES => text,
        Ok(_) => return Err(failed("too long".to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error.to_string())),
    };
    let host = path.authority();
    let host = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let machine = find(&text, host).map_err(failed)?;
    Ok(machine.map(|machine| {
        let user = machine.login.unwrap_or_default();
        let password = machine.password.unwrap_or_default();
        (shown.clone(), basic(&user, &password))
    }))
}

/// Returns the login of a host, or the default one. The parser does not name the reason of an error
/// without quoting the file, so it is not repeated.
fn find(text: &str, host: &str) -> Result<Option<Machine>, String> {
    // Comments are no part of the original format, and unknown to the parser.
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'));
    let text = lines.collect::<Vec<_>>().join("\n");
    let parsed = Netrc::parse(text, true);
    let mut machines = parsed
        .map_err(|_| "not in the format of netrc".to_owned())?
        .machines;
    let of_host = |machine: &Machine| machine.name.as_deref() == Some(host);
    let found = machines.iter().position(of_host);
    let found = found.or_else(|| machines.iter().position(|machine| machine.name.is_none()));
    Ok(found.map(|index| machines.swap_remove(index)))
}

fn basic(user: &str, password: &str) -> String {
    let login = format!("{user}:{password}");
    format!("Basic {}", data_encoding::BASE64.encode(login.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn login_of_the_host_precedes_the_default() {
        let text = "# mine\nmachine a.example\n  login ana password p#1\nmachine b.example login \
                    bob\npassword q\ndefault login anonymous password me@x\n";
        let login = |host| {
            let machine = find(text, host).unwrap().unwrap();
            (machine.login.unwrap(), machine.password.unwrap())
        };
        assert_eq!(login("a.example"), ("ana".to_owned(), "p#1".to_owned()));
        assert_eq!(login("b.example"), ("bob".to_owned(), "q".to_owned()));
        assert_eq!(login("c.example").0, "anonymous");
        assert_eq!(find("machine x login y password z", "h").unwrap(), None);
        assert_eq!(basic("ana", "p"), "Basic YW5hOnA=");
    }
}
