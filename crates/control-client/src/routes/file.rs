//! `routes.toml` as a source of routes: the first rule that matches the destination, if its
//! sessions end at the destination itself.

use std::net::IpAddr;

use longhaul_config::routes::{RouteTable, SessionEnd};
use longhaul_proto::Host;

use crate::routes::question::{Choice, ChosenRoute, Origin, RouteQuery};
use crate::routes::source::{NoRoutes, RouteSource, RoutesFuture};

/// Source of routes that follows the rules of a file.
#[derive(Debug, Clone, Default)]
pub struct FileSource {
    rules: RouteTable,
}

impl FileSource {
    /// Creates a source from these rules.
    #[must_use]
    pub const fn new(rules: RouteTable) -> Self {
        Self { rules }
    }

    /// Derives the choice from the rules.
    ///
    /// # Errors
    /// [`NoRoutes::UnknownDestination`] if no rule applies.
    pub fn choose(&self, question: &RouteQuery) -> Result<Choice, NoRoutes> {
        let to = &question.destination;
        let (address, name): (Option<IpAddr>, Option<&str>) = match &to.host {
            Host::Ip(ip) => (Some(*ip), None),
            Host::Name(name) => (None, Some(name)),
        };
        let rule = self.rules.rule(address, name, to.port);
        // A rule with another end, or with an off-ramp, is for programs that speak another
        // protocol.
        let rule = rule.filter(|rule| rule.end == SessionEnd::Destination);
        let rule = rule.ok_or(NoRoutes::UnknownDestination)?;
        let line = rule.line;
        Ok(Choice {
            routes: vec![ChosenRoute {
                route: rule.via.clone(),
                ..ChosenRoute::direct()
            }],
            at_once: 1,
            seconds: None,
            why: vec![format!("line {line} of routes.toml says so")],
            origin: Origin::File {
                line,
                fall_back: rule.fall_back,
            },
        })
    }
}

impl RouteSource for FileSource {
    fn routes<'a>(&'a self, question: &'a RouteQuery) -> RoutesFuture<'a> {
        Box::pin(async { self.choose(question) })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::routes::question::Urgency;

    #[test]
    fn only_rules_with_sessions_to_the_destination_apply() {
        let text = r#"
[[route]]
to = ["ramped.example"]
offramp = "gw.example"
via = "a.example"

[[route]]
to = ["*.example", "192.0.2.0/24"]
ports = [7511]
acceptor = true
via = "a.example,b.example"
"#;
        let source = FileSource::new(RouteTable::parse(text, Path::new("r")).unwrap());
        let asked = |to: &str| {
            let question = RouteQuery {
                destination: to.parse().unwrap(),
                receives: false,
                bytes: None,
                streams: None,
                congestion: None,
                urgency: Urgency::Usual,
            };
            source.choose(&question).map(|choice| choice.used_names())
        };
        assert_eq!(
            asked("x.example:7511").unwrap(),
            "a.example:7510,b.example:7510"
        );
        assert_eq!(
            asked("192.0.2.7:7511").unwrap(),
            "a.example:7510,b.example:7510"
        );
        for none in ["x.example:80", "ramped.example:7511", "x.other:7511"] {
            assert!(
                matches!(asked(none), Err(NoRoutes::UnknownDestination)),
                "{none}"
            );
        }
    }
}
