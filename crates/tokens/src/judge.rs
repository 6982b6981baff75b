//! Decides what a token permits, once its signature has been verified.

use std::time::{Duration, SystemTime};

use longhaul_proto::text::printable_within;
use longhaul_transfer::{TokenRefusal, TokenRights};

use crate::claims::Claims;
use crate::policy::IssuerPolicy;
use crate::scope::storage_right;

/// Audiences of tokens that are for any service: of the WLCG profile, and of SciTokens.
const ANY_AUDIENCE: [&str; 2] = ["https://wlcg.cern.ch/jwt/v1/any", "ANY"];
/// Maximum length of a subject, in bytes (OpenID Connect Core 1.0, section 2).
const MAX_SUBJECT_BYTES: usize = 255;
/// Maximum number of scopes that permit access to files. Each is compared with each path.
const MAX_RIGHTS: usize = 256;
/// Maximum length of a quoted claim, in bytes.
const MAX_QUOTED_BYTES: usize = 120;

/// Returns the rights of a token with these claims.
///
/// # Errors
/// The reason why the token is not valid here and now.
pub(crate) fn judge(
    claims: &Claims,
    policy: &IssuerPolicy,
    now: SystemTime,
) -> Result<TokenRights, TokenRefusal> {
    if claims.iss != policy.url.as_str() {
        return invalid(format!("it is not of {}", policy.url));
    }
    let (expires, begins) = (moment(claims.exp), claims.nbf.map(moment));
    let Some(expires) = expires.and_then(|at| at.checked_add(policy.leeway)) else {
        return invalid("its time of expiry is not a time".into());
    };
    if expires <= now {
        let ago = now.duration_since(expires).unwrap_or_default() + policy.leeway;
        return invalid(format!("it expired {} s ago", ago.as_secs()));
    }
    match begins {
        Some(None) => return invalid("the beginning of its validity is not a time".into()),
        Some(Some(begins)) if begins > now.checked_add(policy.leeway).unwrap_or(now) => {
            return invalid("it is not valid yet: compare the clocks".into());
        }
        _ => {}
    }
    let is_for_this = |audience: &String| {
        policy.audience.contains(audience)
            || (policy.any_audience && ANY_AUDIENCE.contains(&audience.as_str()))
    };
    if !claims.aud.values().iter().any(is_for_this) {
        return invalid(format!(
            "its audience is {}, and this server's is {}",
            quoted(&claims.aud.values().join(" ")),
            quoted(&policy.audience.join(" "))
        ));
    }
    if claims.sub.is_empty() || claims.sub.len() > MAX_SUBJECT_BYTES {
        return invalid("its subject is empty or too long".into());
    }
    if policy.deny_subjects.contains(&claims.sub) {
        return invalid(format!(
            "this server's operator refuses its subject {}",
            quoted(&claims.sub)
        ));
    }
    let scopes: Vec<&str> = claims.scope.words().collect();
    let has_scope = |scope: &&String| scopes.contains(&scope.as_str());
    if let Some(missing) = policy.require_scopes.iter().find(|scope| !has_scope(scope)) {
        return invalid(format!("it lacks the scope {}", quoted(missing)));
    }
    let has_group = |group: &String| claims.groups.contains(group);
    if !policy.require_groups.is_empty() && !policy.require_groups.iter().any(has_group) {
        return invalid(format!(
            "it is of none of the groups {}",
            quoted(&policy.require_groups.join(" "))
        ));
    }
    let rights: Vec<_> = scopes
        .iter()
        .filter_map(|scope| storage_right(scope))
        .filter_map(|(access, path)| Some((access, policy.base.join(&path).ok()?)))
        .take(MAX_RIGHTS)
        .collect();
    if rights.is_empty() {
        return invalid(format!(
            "none of its scopes is about files: {}",
            quoted(&scopes.join(" "))
        ));
    }
    Ok(TokenRights {
        subject: claims.sub.clone(),
        issuer: claims.iss.clone(),
        groups: claims.groups.clone(),
        expires,
        rights,
    })
}

/// Returns a time of a claim, or `None` if it is not one.
fn moment(seconds: f64) -> Option<SystemTime> {
    let since = Duration::try_from_secs_f64(seconds).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(since)
}

fn quoted(text: &str) -> String {
    match text.is_empty() {
        true => "missing".to_owned(),
        false => format!(
            "\"{}\"",
            printable_within(text.as_bytes(), MAX_QUOTED_BYTES)
        ),
    }
}

fn invalid<T>(why: String) -> Result<T, TokenRefusal> {
    Err(TokenRefusal::Invalid(why))
}

#[cfg(test)]
mod tests {
    use longhaul_transfer::Access;
    use longhaul_transfer::path::RelPath;

    use super::*;
    use crate::policy::IssuerPolicies;

    const NOW: u64 = 1_000_000;

    fn policy(more: &str) -> IssuerPolicy {
        let text = format!(
            "[[issuer]]\nurl = \"https://a.example/\"\naudience = [\"https://dtn.example\"]\n\
             base = \"/exp\"\n{more}"
        );
        let policies = IssuerPolicies::parse(&text, "issuers.toml").unwrap();
        policies.into_vec().remove(0)
    }

    fn claims(more: &str) -> Claims {
        let mut claims = serde_json::json!({
            "iss": "https://a.example/", "sub": "alice", "aud": "https://dtn.example",
            "exp": NOW + 600, "scope": "openid storage.read:/ storage.create:/in",
            "wlcg.groups": ["/exp", "/exp/prod"], "wlcg.ver": "1.0",
        });
        let more: serde_json::Value = serde_json::from_str(more).unwrap();
        for (name, value) in more.as_object().unwrap() {
            claims[name] = value.clone();
        }
        serde_json::from_value(claims).unwrap()
    }

    fn judged(more_claims: &str, more_policy: &str) -> Result<TokenRights, String> {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW);
        judge(&claims(more_claims), &policy(more_policy), now).map_err(|error| error.to_string())
    }

    #[test]
    fn rights_lie_beneath_the_base_of_the_issuer() {
        let rights = judged("{}", "").unwrap();
        let path = |text: &str| RelPath::from_typed(text.as_bytes()).unwrap();
        assert_eq!(
            rights.rights,
            [
                (Access::Read, path("exp")),
                (Access::Create, path("exp/in"))
            ]
        );
        assert_eq!(rights.principal_name(), "alice@https://a.example/");
        assert_eq!(rights.groups, ["/exp", "/exp/prod"]);
        let expires = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW + 660);
        assert_eq!(rights.expires, expires);
    }

    #[test]
    fn scopes_may_be_a_list_and_audiences_several() {
        let several = r#"{"aud": ["x", "https://dtn.example"], "scope": ["read:/", "openid"]}"#;
        assert_eq!(judged(several, "").unwrap().rights.len(), 1);
    }

    #[test]
    fn token_is_valid_within_its_times_and_the_leeway() {
        let at = |name: &str, seconds: u64| format!("{{\"{name}\": {seconds}}}");
        for (claims, policy, is_valid) in [
            (at("exp", NOW - 59), "", true),
            (at("exp", NOW - 60), "", false),
            (at("exp", NOW), "leeway_seconds = 0", false),
            (at("exp", NOW + 1), "leeway_seconds = 0", true),
            (at("nbf", NOW + 60), "", true),
            (at("nbf", NOW + 61), "", false),
            (at("nbf", NOW + 1), "leeway_seconds = 0", false),
            (r#"{"exp": 1e300}"#.into(), "", false),
            (r#"{"exp": -5}"#.into(), "", false),
            (r#"{"exp": 1000600.5}"#.into(), "", true),
            (r#"{"nbf": -5}"#.into(), "", false),
        ] {
            let judged = judged(&claims, policy);
            assert_eq!(judged.is_ok(), is_valid, "{claims} {policy}: {judged:?}");
        }
        assert!(
            judged(&at("exp", NOW - 90), "")
                .unwrap_err()
                .contains("90 s ago")
        );
    }

    #[test]
    fn token_for_another_service_is_refused() {
        let error = judged(r#"{"aud": "https://other.example"}"#, "").unwrap_err();
        assert!(
            error.contains("\"https://other.example\"")
                && error.contains("\"https://dtn.example\""),
            "{error}"
        );
        for any in ["https://wlcg.cern.ch/jwt/v1/any", "ANY"] {
            let claims = format!("{{\"aud\": [\"{any}\"]}}");
            assert!(judged(&claims, "").is_err());
            assert!(judged(&claims, "any_audience = true").is_ok());
        }
        assert!(judged(r#"{"aud": []}"#, "any_audience = true").is_err());
    }

    #[test]
    fn conditions_of_the_operator_are_enforced() {
        for (policy, is_valid) in [
            ("require_scopes = [\"openid\"]", true),
            ("require_scopes = [\"openid\", \"compute.read\"]", false),
            ("require_groups = [\"/other\", \"/exp/prod\"]", true),
            ("require_groups = [\"/other\"]", false),
            ("deny_subjects = [\"alice\"]", false),
            ("deny_subjects = [\"bob\"]", true),
        ] {
            assert_eq!(judged("{}", policy).is_ok(), is_valid, "{policy}");
        }
    }

    #[test]
    fn token_without_rights_to_files_is_refused() {
        for claims in [
            r#"{"scope": "openid"}"#,
            r#"{"scope": ""}"#,
            r#"{"scope": "read:/../x write:relative"}"#,
            r#"{"sub": ""}"#,
            r#"{"iss": "https://b.example/"}"#,
        ] {
            assert!(judged(claims, "").is_err(), "{claims}");
        }
    }

    #[test]
    fn foreign_words_are_quoted_in_printable_form() {
        let error = judged(r#"{"aud": "\u001b[31m"}"#, "").unwrap_err();
        assert!(!error.contains('\u{1b}'), "{error}");
    }
}
