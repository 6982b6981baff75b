//! Command-line options for the on-ramp's entries: the addresses where connections arrive.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use longhaul_onramp::{Forward, GuestPolicy, OnrampConfig, PathShares, ProxyLogin, SessionWish};
use longhaul_policy::Network;
use longhaul_proto::Endpoint;
use quantities::{ByteCount, Rate, Time};

use super::{default_config, default_socket};
use crate::home;
use crate::resume::resume_limits;

/// Maximum bytes of a purpose that fits into an OPEN.
const MAX_PURPOSE_BYTES: usize = 64;
const FORWARD: &str = "LISTEN=HOST:PORT[,purpose=TEXT][,size=SIZE][,rate=RATE][,duration=TIME]";

/// Entries and their settings.
#[derive(Args)]
pub struct Entries {
    /// Unix socket for `longhaul run` and the C API [default: onramp/socket in the state
    /// directory].
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Speak SOCKS (versions 4a and 5) at this address; a port alone means 127.0.0.1. Repeatable.
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub socks: Vec<SocketAddr>,
    /// Speak HTTP at this address, for CONNECT and plain http, and serve the proxy configuration at
    /// /proxy.pac; a port alone means 127.0.0.1. Repeatable.
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub http: Vec<SocketAddr>,
    /// Forward connections made to one address to one destination, over the route that the rules
    /// name; their purpose may follow it. A port alone means 127.0.0.1. Repeatable.
    #[arg(long, value_name = FORWARD, value_parser = forward)]
    pub forward: Vec<Forward>,
    /// Take connections that the firewall redirects (nftables redirect) to this address; a port
    /// alone means 127.0.0.1. Repeatable.
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub redirect: Vec<SocketAddr>,
    /// Take connections that the firewall hands over as they are (nftables tproxy) at this address;
    /// a port alone means 127.0.0.1. Repeatable. Needs CAP_NET_ADMIN.
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub tproxy: Vec<SocketAddr>,
    /// Admit connections from this network too, besides those of this machine; repeatable. They
    /// lead to no local address of this machine unless a rule names it. A proxy that other machines
    /// can reach needs it, or --login.
    #[arg(long, value_name = "NETWORK")]
    pub allow_from: Vec<Network>,
    /// Require the user and password in the first line of this file, as user:password, from clients
    /// of SOCKS or HTTP.
    #[arg(long, value_name = "FILE")]
    pub login: Option<PathBuf>,
    /// The file of routes [default: routes.toml beside the keys].
    #[arg(long, value_name = "FILE")]
    pub routes: Option<PathBuf>,
    /// Use the routes that the controller chooses for this machine instead of a file: fetched every
    /// 30 seconds, kept while it does not answer, and dropped after a day without it.
    #[arg(long, conflicts_with = "routes")]
    pub follow_controller: bool,
    /// Ask no controller for circuits, whatever programs and rules wish.
    #[arg(long)]
    pub no_reserve: bool,
    /// Spread direct connections over the paths of this reservation, by source port, if they lead
    /// to its destination; repeatable. The controller is that of `longhaul controller use`.
    #[arg(long, value_name = "ID")]
    pub reservation: Vec<u64>,
    /// Number of connections on each path of a reservation: `rate`, in proportion to what each
    /// carries; `even`; or a share for each path, such as 70:30 [default: rate].
    #[arg(long, value_name = "HOW", requires = "reservation")]
    pub spread: Option<PathShares>,
    /// The key to authenticate with [default: the default key, made when first needed].
    #[arg(long, value_name = "FILE")]
    pub identity: Option<PathBuf>,
    /// Serve counters as OpenMetrics at http://ADDRESS/metrics; a port alone means 127.0.0.1.
    /// Anyone who can connect there can read them.
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub metrics: Option<SocketAddr>,
    /// Maximum simultaneous connections, of which one source address gets at most half; programs at
    /// the socket have as many of their own [default: 8192].
    #[arg(long, value_name = "N")]
    pub max_connections: Option<usize>,
    /// Time for connections to finish once it is told to stop: 90s, 10min; a bare number is
    /// seconds.
    #[arg(long, value_name = "TIME")]
    pub drain: Option<Time>,
    /// Maximum time for which a session with an off-ramp may be without a connection when a depot
    /// dies, before its program gets a reset: 30s, 5min; a bare number is seconds [default: 60 s].
    #[arg(long, value_name = "TIME")]
    pub resume_within: Option<Time>,
    /// End sessions with their connection, instead of resuming them over another route.
    #[arg(long, conflicts_with = "resume_within")]
    pub no_resume: bool,
}

impl Entries {
    /// Builds the on-ramp's configuration.
    pub fn config(&self) -> Result<OnrampConfig> {
        let identity = Arc::new(home::identity(self.identity.as_deref())?);
        let mut config = default_config(identity)?;
        if let Some(routes) = &self.routes {
            config.routes.clone_from(routes);
        }
        config.socket = Some(match &self.socket {
            Some(path) => path.clone(),
            None => default_socket()?,
        });
        config.socks.clone_from(&self.socks);
        config.http.clone_from(&self.http);
        config.forwards.clone_from(&self.forward);
        config.redirect.clone_from(&self.redirect);
        config.tproxy.clone_from(&self.tproxy);
        config.metrics = self.metrics;
        config.shares = self.spread.clone().unwrap_or_default();
        config.guests = GuestPolicy {
            login: self.login.as_deref().map(login).transpose()?,
            networks: self.allow_from.clone(),
        };
        config.connections = self.max_connections.unwrap_or(config.connections);
        config.drain = self.drain.map_or(config.drain, |Time(drain)| drain);
        config.resume = resume_limits(self.resume_within, self.no_resume);
        Ok(config)
    }

    /// Formats the options as arguments, with absolute file names.
    pub fn arguments(&self) -> Result<Vec<String>> {
        let mut arguments = Vec::new();
        let mut push =
            |option: &str, value: String| arguments.extend([format!("--{option}"), value]);
        let files = [
            ("socket", &self.socket),
            ("login", &self.login),
            ("routes", &self.routes),
            ("identity", &self.identity),
        ];
        for (option, file) in files {
            if let Some(file) = file {
                let whole = std::path::absolute(file)?;
                let text = whole.to_str().map(str::to_owned);
                push(
                    option,
                    text.with_context(|| {
                        format!(
                            "{}: a systemd unit cannot name such a file",
                            home::display_path(file)
                        )
                    })?,
                );
            }
        }
        let addresses = [
            ("socks", &self.socks),
            ("http", &self.http),
            ("redirect", &self.redirect),
            ("tproxy", &self.tproxy),
        ];
        for (option, at) in addresses {
            at.iter().for_each(|at| push(option, at.to_string()));
        }
        self.forward
            .iter()
            .for_each(|forward| push("forward", forward_text(forward)));
        for network in &self.allow_from {
            push(
                "allow-from",
                format!("{}/{}", network.address(), network.prefix()),
            );
        }
        for id in &self.reservation {
            push("reservation", id.to_string());
        }
        if let Some(shares) = &self.spread {
            push("spread", shares.to_string());
        }
        if let Some(metrics) = self.metrics {
            push("metrics", metrics.to_string());
        }
        if let Some(connections) = self.max_connections {
            push("max-connections", connections.to_string());
        }
        if let Some(Time(drain)) = self.drain {
            push("drain", drain.as_secs().max(1).to_string());
        }
        if let Some(Time(within)) = self.resume_within {
            push("resume-within", within.as_secs().max(1).to_string());
        }
        if self.no_resume {
            arguments.push("--no-resume".to_owned());
        }
        if self.no_reserve {
            arguments.push("--no-reserve".to_owned());
        }
        if self.follow_controller {
            arguments.push("--follow-controller".to_owned());
        }
        Ok(arguments)
    }
}

/// Parses an address with a port, or a port of 127.0.0.1.
fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    text.parse().map_err(|_| {
        "write ADDRESS:PORT, such as 127.0.0.1:1080 or [::1]:1080, or a port alone".to_owned()
    })
}

/// Parses a forward.
fn forward(text: &str) -> Result<Forward, String> {
    let (listen, rest) = text
        .split_once('=')
        .ok_or_else(|| format!("write {FORWARD}"))?;
    let mut parts = rest.split(',');
    let to = parts.next().unwrap_or_default();
    let to: Endpoint = to
        .parse()
        .map_err(|error: longhaul_proto::EndpointError| error.to_string())?;
    let mut wish = SessionWish::default();
    for part in parts {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        match name {
            "purpose" if !value.is_empty() && value.len() <= MAX_PURPOSE_BYTES => {
                wish.purpose = Some(value.to_owned())
            }
            "purpose" => return Err(format!("purpose: write 1 to {MAX_PURPOSE_BYTES} bytes")),
            "size" => {
                wish.size = Some(
                    value
                        .parse::<ByteCount>()
                        .map_err(|error| format!("size: {error}"))?
                        .0,
                )
            }
            "rate" => {
                let rate: Rate = value.parse().map_err(|error| format!("rate: {error}"))?;
                wish.rate = Some(rate.bits_per_second().max(1.0) as u64);
            }
            "duration" => {
                let Time(time) = value
                    .parse()
                    .map_err(|error| format!("duration: {error}"))?;
                wish.duration = Some(time.as_secs().max(1));
            }
            _ => {
                return Err(format!(
                    "{name:?} is not an option of a forward: write purpose, size, rate or duration"
                ));
            }
        }
    }
    Ok(Forward {
        listen: address(listen)?,
        to,
        wish,
    })
}

fn forward_text(forward: &Forward) -> String {
    let mut text = format!("{}={}", forward.listen, forward.to);
    let SessionWish {
        purpose,
        size,
        rate,
        duration,
    } = &forward.wish;
    let mut push = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            text.push_str(&format!(",{name}={value}"));
        }
    };
    push("purpose", purpose.clone());
    push("size", size.map(|size| size.to_string()));
    push("rate", rate.map(|rate| rate.to_string()));
    push("duration", duration.map(|duration| duration.to_string()));
    text
}

/// Reads the user and password from a file that nobody else may read.
fn login(file: &Path) -> Result<ProxyLogin> {
    use std::os::unix::fs::MetadataExt;
    let shown = home::display_path(file);
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {shown}"))?;
    let mode = std::fs::metadata(file)
        .with_context(|| format!("cannot read {shown}"))?
        .mode();
    if mode & 0o077 != 0 {
        return Err(anyhow!(
            "{shown} has a password that others may read: run chmod 600 on it"
        ));
    }
    let line = text.lines().next().unwrap_or_default();
    match line.split_once(':') {
        Some((user, password)) if !user.is_empty() && !password.is_empty() => Ok(ProxyLogin {
            user: user.to_owned(),
            password: password.to_owned(),
        }),
        _ => Err(anyhow!("{shown}: write user:password in its first line")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Whole {
        #[command(flatten)]
        entries: Entries,
    }

    #[test]
    fn a_unit_repeats_the_command_line() {
        let given = [
            "--socket=/run/s",
            "--socks=1080",
            "--http",
            "[::1]:8118",
            "--forward",
            "2811=archive.example:2811,purpose=nightly,size=10G,rate=1Gbit/s,duration=1h",
            "--redirect=0.0.0.0:7513",
            "--tproxy=[::]:7514",
            "--allow-from=192.0.2.0/24",
            "--login=/l",
            "--routes=/r",
            "--reservation=12",
            "--reservation=13",
            "--spread=70:30",
            "--identity=/i",
            "--metrics=9512",
            "--max-connections=7",
            "--drain=2min",
            "--resume-within=90",
        ];
        let read = |arguments: &[String]| {
            let whole = std::iter::once("x".to_owned()).chain(arguments.iter().cloned());
            Whole::try_parse_from(whole)
                .unwrap_or_else(|error| panic!("{error}"))
                .entries
        };
        let first = read(&given.map(str::to_owned)).arguments().unwrap();
        let again = read(&first).arguments().unwrap();
        assert_eq!(first, again);
        let line = first.join(" ");
        assert!(
            line.contains("--socks 127.0.0.1:1080")
                && line.contains("--drain 120")
                && line.contains("--resume-within 90"),
            "{line}"
        );
        let forward = "--forward 127.0.0.1:2811=archive.example:2811,purpose=nightly,\
            size=10737418240,rate=1000000000,duration=3600";
        assert!(line.contains(forward), "{line}");
    }

    #[test]
    fn invalid_forwards_are_reported() {
        for (text, problem) in [
            ("2811", "write LISTEN=HOST:PORT"),
            ("2811=h", "names no port"),
            ("x=h:1", "write ADDRESS:PORT"),
            ("1=h:1,colour=red", "is not an option of a forward"),
            ("1=h:1,purpose=", "write 1 to 64 bytes"),
            ("1=h:1,size=much", "size: "),
        ] {
            let error = forward(text).unwrap_err();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }

    #[test]
    fn a_password_file_readable_by_others_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("login");
        std::fs::write(&file, "me:a word\n").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(
            login(&file)
                .unwrap_err()
                .to_string()
                .ends_with("run chmod 600 on it")
        );
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(login(&file).unwrap().password, "a word");
        std::fs::write(&file, "me\n").unwrap();
        assert!(login(&file).is_err());
    }
}
