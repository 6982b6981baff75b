//! Proxy auto-configuration file for browsers: `/proxy.pac`, generated from the rules in force.
//!
//! Browsers fetch it without a password, so a proxy with a password does not reveal its rules. Nor
//! does it reveal them to another site's page, which could make its own name resolve to this
//! machine (DNS rebinding).
//!
//! The file states which destinations have a rule. The proxy decides on each request if the
//! connection takes the route.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::http::uri::Authority;
use longhaul_config::routes::{RouteRule, SessionEnd};
use longhaul_policy::HostPattern;
use longhaul_proto::Host;

use super::{Answer, text};

/// Path of the file.
pub(super) const PATH: &str = "/proxy.pac";

/// Helper functions for the rules. No name is looked up.
const HEAD: &str = r#"// Made from the table of routes in force.
function isName(host, name) { return host === name; }
function endsIn(host, end) { return host.length > end.length && host.slice(-end.length) === end; }
function isV6(host) { return host.indexOf(":") >= 0; }
function isV4(host) { return /^\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(host); }
function isAddress(host) { return isV6(host) || isV4(host); }
function inV4(host, network, bits) {
  if (!isV4(host)) return false;
  var number = host.split(".").reduce(function (all, part) { return all * 256 + Number(part); }, 0);
  var size = Math.pow(2, 32 - bits);
  return Math.floor(number / size) === Math.floor(network / size);
}
function portOf(url) {
  var parts = /^([a-z]+):\/\/(?:[^\/@]*@)?(?:\[[^\]]*\]|[^\/:]*)(?::(\d+))?/i.exec(url);
  if (!parts) return 0;
  var usual = { http: 80, ws: 80, https: 443, wss: 443, ftp: 21 };
  return parts[2] ? Number(parts[2]) : usual[parts[1].toLowerCase()] || 0;
}
function FindProxyForURL(url, host) {
  host = host.toLowerCase().replace(/^\[|\]$/g, "").replace(/\.$/, "");
  var port = portOf(url);
"#;

/// Returns true if `Host` names the proxy by an address or as `localhost`, or is absent. Another
/// site's page cannot cause such a request.
pub(super) fn names_an_address(host: Option<&[u8]>) -> bool {
    let Some(host) = host else { return true };
    let authority = Authority::try_from(host);
    authority.is_ok_and(|authority| {
        let host = authority.host();
        host.eq_ignore_ascii_case("localhost") || matches!(Host::parse(host), Ok(Host::Ip(_)))
    })
}

/// Returns the file with the rules, for a browser that found the proxy at `at`.
pub(super) fn answer(rules: &[RouteRule], at: SocketAddr) -> Answer {
    file(script(rules, at))
}

/// Returns the file without the rules: browsers send everything to the proxy, which applies them.
pub(super) fn answer_without_rules(at: SocketAddr) -> Answer {
    file(format!("{HEAD}  return \"PROXY {at}\";\n}}\n"))
}

fn file(script: String) -> Answer {
    let mut answer = text(StatusCode::OK, script);
    let headers = answer.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/x-ns-proxy-autoconfig"),
    );
    // The file changes with the rules.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Prevents pages from loading it as a script.
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

fn script(rules: &[RouteRule], at: SocketAddr) -> String {
    let mut script = HEAD.to_owned();
    for rule in rules {
        let hosts: Vec<String> = rule.to().iter().map(host).collect();
        let ports: Vec<String> = rule
            .ports()
            .iter()
            .map(|ports| format!("(port >= {} && port <= {})", ports.start(), ports.end()))
            .collect();
        let ports = match ports.is_empty() {
            true => "true".to_owned(),
            false => ports.join(" || "),
        };
        let way = match (&rule.end, rule.fall_back) {
            (SessionEnd::None, _) => "DIRECT".to_owned(),
            (_, true) => format!("PROXY {at}; DIRECT"),
            (_, false) => format!("PROXY {at}"),
        };
        // Writing to a String does not fail.
        let _ = writeln!(
            script,
            "  if (({}) && ({ports})) return \"{way}\";",
            hosts.join(" || ")
        );
    }
    script.push_str("  return \"DIRECT\";\n}\n");
    script
}

/// Returns the script's condition for a host. Patterns contain no character that is special in a
/// script's string.
fn host(pattern: &HostPattern) -> String {
    match pattern {
        HostPattern::Name(name) => format!("isName(host, \"{name}\")"),
        HostPattern::Suffix(end) if end.is_empty() => "!isAddress(host)".to_owned(),
        HostPattern::Suffix(end) => format!("endsIn(host, \"{end}\")"),
        HostPattern::Network(network) => match network.address() {
            IpAddr::V4(ip) => format!("inV4(host, {}, {})", ip.to_bits(), network.prefix()),
            // Any IPv6 address goes to the proxy, which decides on each request.
            IpAddr::V6(_) => "isV6(host)".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use longhaul_config::routes::RouteTable;

    use super::*;

    const RULES: &str = r#"
[[route]]
to = ["direct.example"]
[[route]]
to = ["*.example", "192.0.2.0/24", "2001:db8::/32"]
ports = [443, "8000-8099"]
offramp = "gateway.example"
[[route]]
to = ["only.test"]
offramp = "gateway.example"
fall_back = false
"#;

    #[test]
    fn only_addresses_and_localhost_count_as_own_host() {
        for host in [
            "127.0.0.1:3128",
            "192.0.2.1",
            "[::1]:80",
            "[2001:db8::1]",
            "localhost:1",
            "LOCALHOST",
        ] {
            assert!(names_an_address(Some(host.as_bytes())), "{host}");
        }
        assert!(names_an_address(None));
        for host in [
            "",
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example:3128",
            "::1",
            "a b",
        ] {
            assert!(!names_an_address(Some(host.as_bytes())), "{host}");
        }
    }

    /// Evaluated by node, if it is installed.
    #[test]
    fn a_browser_asks_the_proxy_for_what_rules_name() {
        let rules = RouteTable::parse(RULES, Path::new("routes.toml")).unwrap();
        let script = script(rules.rules(), "127.0.0.1:8118".parse().unwrap());
        let cases = [
            ("https://direct.example/", "direct.example", "DIRECT"),
            (
                "https://a.example/",
                "A.Example",
                "PROXY 127.0.0.1:8118; DIRECT",
            ),
            ("http://a.example/", "a.example", "DIRECT"),
            (
                "http://a.example:8042/x",
                "a.example",
                "PROXY 127.0.0.1:8118; DIRECT",
            ),
            ("https://example/", "example", "DIRECT"),
            (
                "https://192.0.2.77/",
                "192.0.2.77",
                "PROXY 127.0.0.1:8118; DIRECT",
            ),
            ("https://192.0.3.77/", "192.0.3.77", "DIRECT"),
            (
                "https://[2001:db8::1]/",
                "2001:db8::1",
                "PROXY 127.0.0.1:8118; DIRECT",
            ),
            ("http://only.test/", "only.test", "PROXY 127.0.0.1:8118"),
        ];
        let calls =
            cases.map(|(url, host, _)| format!("console.log(FindProxyForURL({url:?}, {host:?}));"));
        let program = script.clone() + &calls.join("\n");
        let Ok(output) = Command::new("node").arg("-e").arg(program).output() else {
            eprintln!("not tested: node is not installed");
            return;
        };
        let said = String::from_utf8(output.stdout).unwrap();
        let expected: Vec<&str> = cases.iter().map(|(_, _, way)| *way).collect();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(
            said.lines().collect::<Vec<_>>(),
            expected,
            "{error}\n{script}"
        );
    }
}
