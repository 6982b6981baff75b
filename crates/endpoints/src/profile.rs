//! Profiles in the shared files of the AWS tools: `~/.aws/credentials` and `~/.aws/config`.

use std::path::PathBuf;

use configparser::ini::{Ini, IniDefault};

/// Settings in a profile that give credentials in ways that are not supported here.
const OTHER_WAYS: [&str; 5] = [
    "credential_process",
    "sso_session",
    "sso_start_url",
    "role_arn",
    "web_identity_token_file",
];

/// Settings of a profile.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Profile {
    pub keys: Option<ProfileKeys>,
    pub region: Option<String>,
    pub endpoint: Option<String>,
    /// Setting by which other tools find the credentials.
    pub other_way: Option<&'static str>,
}

/// Access key of a profile.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ProfileKeys {
    pub id: String,
    pub secret: String,
    pub token: Option<String>,
}

impl std::fmt::Debug for ProfileKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProfileKeys").finish_non_exhaustive()
    }
}

/// Reason why a profile cannot be used.
#[derive(Debug)]
pub(crate) struct ProfileError {
    pub what: String,
    pub reason: String,
}

impl Profile {
    /// Reads the profile that the environment chooses.
    ///
    /// # Errors
    /// A file cannot be read, or the chosen profile is in neither.
    pub(crate) fn read() -> Result<Self, ProfileError> {
        let chosen = std::env::var("AWS_PROFILE").ok();
        let name = chosen.as_deref().unwrap_or("default");
        let credentials = Sections::read("AWS_SHARED_CREDENTIALS_FILE", "credentials")?;
        let config = Sections::read("AWS_CONFIG_FILE", "config")?;
        match (Self::find(name, &credentials, &config), chosen) {
            (Some(profile), _) => Ok(profile),
            (None, None) => Ok(Self::default()),
            (None, Some(name)) => Err(ProfileError {
                what: format!("AWS_PROFILE={name}"),
                reason: "no such profile in ~/.aws/credentials or ~/.aws/config".to_owned(),
            }),
        }
    }

    /// Returns a profile. Credentials in the first file take precedence.
    fn find(name: &str, credentials: &Sections, config: &Sections) -> Option<Self> {
        let in_config = match name {
            "default" => name.to_owned(),
            name => format!("profile {name}"),
        };
        if !credentials.has(name) && !config.has(&in_config) {
            return None;
        }
        let get = |key| {
            let first = credentials.get(name, key);
            first.or_else(|| config.get(&in_config, key))
        };
        let keys = get("aws_access_key_id").zip(get("aws_secret_access_key"));
        Some(Self {
            other_way: OTHER_WAYS.into_iter().find(|key| get(key).is_some()),
            region: get("region"),
            endpoint: get("endpoint_url"),
            keys: keys.map(|(id, secret)| ProfileKeys {
                id,
                secret,
                token: get("aws_session_token"),
            }),
        })
    }
}

/// Sections of a file.
struct Sections(Ini);

impl Sections {
    /// Reads the file that `variable` names, or the one of this name in `~/.aws`. A missing file is
    /// empty.
    fn read(variable: &str, name: &str) -> Result<Self, ProfileError> {
        let named = std::env::var_os(variable).map(PathBuf::from);
        let home = || {
            Some(
                PathBuf::from(std::env::var_os("HOME")?)
                    .join(".aws")
                    .join(name),
            )
        };
        let Some(file) = named.or_else(home) else {
            return Ok(Self(Ini::new_cs()));
        };
        let failed = |reason: String| ProfileError {
            what: file.display().to_string(),
            reason,
        };
        match std::fs::read_to_string(&file) {
            Ok(text) => Self::parse(text).map_err(failed),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self(Ini::new_cs())),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    fn parse(text: String) -> Result<Self, String> {
        let mut defaults = IniDefault::default();
        defaults.case_sensitive = true;
        // A secret may contain any of these characters.
        defaults.delimiters = vec!['='];
        defaults.enable_inline_comments = false;
        let mut ini = Ini::new_from_defaults(defaults);
        ini.read(text)?;
        Ok(Self(ini))
    }

    fn has(&self, section: &str) -> bool {
        self.0.get_map_ref().contains_key(section)
    }

    fn get(&self, section: &str, key: &str) -> Option<String> {
        self.0.get(section, key).filter(|value| !value.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sections(text: &str) -> Sections {
        Sections::parse(text.to_owned()).unwrap()
    }

    #[test]
    fn profile_is_found_in_both_files() {
        let credentials = sections(
            "# keys\n[default]\naws_access_key_id = A\naws_secret_access_key = s/#;:=x\n\n\
             [lab]\naws_access_key_id=B\naws_secret_access_key=t\naws_session_token=u==\n",
        );
        let config = sections(
            "[default]\nregion = eu-west-1\n[profile lab]\nregion = us-west-2\n\
             endpoint_url = https://s3.lab.example:9000\ns3 =\n  addressing_style = path\n\
             [profile sso]\nsso_start_url = https://x\n",
        );
        let find = |name| Profile::find(name, &credentials, &config);
        let default = find("default").unwrap();
        let keys = default.keys.unwrap();
        assert_eq!((keys.id.as_str(), keys.secret.as_str()), ("A", "s/#;:=x"));
        assert_eq!(
            (keys.token, default.region.as_deref()),
            (None, Some("eu-west-1"))
        );
        let lab = find("lab").unwrap();
        assert_eq!(lab.keys.unwrap().token.as_deref(), Some("u=="));
        assert_eq!(lab.region.as_deref(), Some("us-west-2"));
        assert_eq!(lab.endpoint.as_deref(), Some("https://s3.lab.example:9000"));
        let sso = find("sso").unwrap();
        assert_eq!((sso.keys, sso.other_way), (None, Some("sso_start_url")));
        assert_eq!(find("other"), None);
    }

    #[test]
    fn secrets_are_not_shown() {
        let keys = ProfileKeys {
            id: "A".to_owned(),
            secret: "s3cret".to_owned(),
            token: None,
        };
        assert!(!format!("{keys:?}").contains("s3cret"));
    }
}
