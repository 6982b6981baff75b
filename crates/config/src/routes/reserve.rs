//! The circuits of a rule: `reserve = false`, or a table.
//!
//! ```toml
//! reserve = { rate = "2G", for = "10min", direction = "send", after = "64M", above = "500M" }
//! ```

use longhaul_wishes::terms::{DEFAULT_DURATION, DEFAULT_LONG_BYTES, MAX_DURATION};
use longhaul_wishes::{FlowDirection, ReserveDefault, ReserveRule};
use quantities::{ByteCount, Rate, Time};
use serde::Deserialize;

/// Text of a rule's `reserve`.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum ReserveText {
    Permitted(bool),
    Default(DefaultText),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DefaultText {
    rate: String,
    #[serde(rename = "for")]
    duration: Option<String>,
    direction: Option<String>,
    after: Option<String>,
    above: Option<String>,
}

/// Parses a rule's `reserve`. The error says what to write.
pub(super) fn parse(text: &ReserveText) -> Result<ReserveRule, String> {
    let text = match text {
        ReserveText::Permitted(true) => return Ok(ReserveRule::Stated),
        ReserveText::Permitted(false) => return Ok(ReserveRule::Never),
        ReserveText::Default(text) => text,
    };
    let rate = |name: &str, text: &str| -> Result<u64, String> {
        let rate: Rate = text.parse().map_err(|error| format!("{name}: {error}"))?;
        match rate.bits_per_second() >= 1.0 {
            true => Ok(rate.bits_per_second() as u64),
            false => Err(format!("{name}: write a rate such as 2G")),
        }
    };
    let duration = match &text.duration {
        None => DEFAULT_DURATION,
        Some(text) => {
            let Time(time) = text.parse().map_err(|error| format!("for: {error}"))?;
            if time.is_zero() || time > MAX_DURATION {
                return Err("for: write a time of up to 24h, such as 10min".to_owned());
            }
            time
        }
    };
    let direction = match text.direction.as_deref() {
        None => None,
        Some("send") => Some(FlowDirection::Send),
        Some("receive") => Some(FlowDirection::Receive),
        Some(_) => return Err("direction: write \"send\" or \"receive\"".to_owned()),
    };
    let after = match &text.after {
        None => DEFAULT_LONG_BYTES,
        Some(text) => {
            let ByteCount(bytes) = text.parse().map_err(|error| format!("after: {error}"))?;
            bytes
        }
    };
    let above = text.above.as_ref().map(|text| rate("above", text));
    Ok(ReserveRule::Default(ReserveDefault {
        rate: rate("rate", &text.rate)?,
        duration,
        direction,
        after,
        above: above.transpose()?,
    }))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::super::{Author, RouteTable};
    use super::*;

    fn reserve(line: &str) -> Result<ReserveRule, String> {
        let text = format!("[[route]]\nto = [\"*\"]\n{line}\n");
        let table = RouteTable::parse(&text, Path::new("r.toml"));
        let table = table.map_err(|error| error.to_string())?;
        Ok(table
            .rules()
            .first()
            .map(|rule| rule.reserve)
            .unwrap_or_default())
    }

    #[test]
    fn rules_name_defaults_and_refusals() {
        assert_eq!(reserve(""), Ok(ReserveRule::Stated));
        assert_eq!(reserve("reserve = false"), Ok(ReserveRule::Never));
        let usual = ReserveDefault {
            rate: 2_000_000_000,
            duration: DEFAULT_DURATION,
            direction: None,
            after: DEFAULT_LONG_BYTES,
            above: None,
        };
        let read = reserve("reserve = { rate = \"2G\" }");
        assert_eq!(read, Ok(ReserveRule::Default(usual)));
        let read = reserve(
            "reserve = { rate = \"2G\", for = \"2h\", direction = \"receive\", after = \"1M\", \
             above = \"500M\" }",
        );
        let all = ReserveDefault {
            duration: Duration::from_secs(7200),
            direction: Some(FlowDirection::Receive),
            after: 1 << 20,
            above: Some(500_000_000),
            ..usual
        };
        assert_eq!(read, Ok(ReserveRule::Default(all)));
    }

    #[test]
    fn mistakes_name_the_line_and_the_field() {
        for (line, problem) in [
            ("reserve = { rate = \"fast\" }", "r.toml:3: reserve: rate: "),
            ("reserve = { rate = \"0\" }", "r.toml:3: reserve: rate: "),
            (
                "reserve = { rate = \"1G\", for = \"25h\" }",
                "reserve: for: write a time",
            ),
            (
                "reserve = { rate = \"1G\", direction = \"up\" }",
                "direction: write",
            ),
            (
                "reserve = { rate = \"1G\", after = \"x\" }",
                "reserve: after: ",
            ),
            (
                "reserve = { rate = \"1G\", above = \"x\" }",
                "reserve: above: ",
            ),
        ] {
            let error = reserve(line).unwrap_err();
            assert!(error.contains(problem), "{line}: {error}");
        }
        assert!(reserve("reserve = { for = \"1h\" }").is_err());
        assert!(reserve("reserve = \"1G\"").is_err());
    }

    #[test]
    fn a_controller_reserves_nothing_in_a_users_name() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("routes.toml");
        let text = "[[route]]\nto = [\"*\"]\nreserve = { rate = \"2G\" }\n";
        std::fs::write(&file, text).unwrap();
        let table = RouteTable::load_as(&file, Author::Controller).unwrap();
        let rule = table.rules().first().unwrap();
        assert_eq!(rule.reserve, ReserveRule::Stated);
        let shown = super::super::controllers::without_trusted_settings(text).unwrap();
        assert!(!shown.contains("reserve"), "{shown}");
    }
}
