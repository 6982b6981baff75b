//! Decision for whom a worker is started: the file that root writes, and the limits that no file
//! lifts. Pure.

use serde::Deserialize;

use super::user::LocalUser;

/// Smallest user and group number of a person, unless the file names another one (`UID_MIN` of
/// login.defs(5)).
const DEFAULT_MINIMUM_UID: u32 = 1000;

/// The file of the helper.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct AccountRules {
    /// User that `longhaul serve` runs as. Nobody else may ask.
    pub server: String,
    /// Users as whom workers run.
    accounts: Vec<String>,
    /// Smallest number of a user that may be an account.
    #[serde(default = "default_minimum_uid")]
    minimum_uid: u32,
}

const fn default_minimum_uid() -> u32 {
    DEFAULT_MINIMUM_UID
}

/// Reason why no worker is started.
#[derive(Debug, thiserror::Error)]
pub(super) enum AccountRefusal {
    /// The file of the helper does not list the account. Add it to `accounts` there if the server
    /// is to work as this user.
    #[error(
        "account {0:?} is not in the file of longhaul serve-accounts; add it to accounts = [...]"
    )]
    NotListed(String),
    /// This machine has no such user. Create it, or correct its name in the grants.
    #[error("account {0:?} is no user of this machine; create it (useradd)")]
    Unknown(String),
    /// The account is root, or has root's group. No worker runs as root.
    #[error(
        "account {0:?} is root or in root's group, as which no worker runs; use a person's account"
    )]
    Root(String),
    /// The account is a user of the system. Raise its number, or lower `minimum-uid` in the file of
    /// the helper.
    #[error(
        "account {account:?} has the number {uid}, and workers run from {minimum} on: it is a \
         system user; see minimum-uid in the file of longhaul serve-accounts"
    )]
    System {
        /// The account.
        account: String,
        /// Its number.
        uid: u32,
        /// Smallest number of an account.
        minimum: u32,
    },
    /// Another user than the server's asked. Run `longhaul serve` as the user that `server` names
    /// in the file of the helper.
    #[error(
        "user {uid} asks for a worker, and only {server:?} may: run longhaul serve as that user"
    )]
    NotTheServer {
        /// Number of the user that asked.
        uid: u32,
        /// User that may ask.
        server: String,
    },
    /// The server's user sent something else. Update the server, or the helper.
    #[error("not a request for a worker: {0}; restart both services after an update")]
    Request(std::io::Error),
    /// The account has as many workers as it may. Wait until earlier servers have ended.
    #[error("the account already has {0} workers; retry when earlier servers have ended")]
    TooMany(usize),
    /// The file of the helper cannot be read any more. Correct it.
    #[error("{0}")]
    Rules(String),
    /// The process could not be started. Its cause says why; Linux 5.9 or later is needed.
    #[error("the worker could not be started: {0}")]
    Start(std::io::Error),
}

impl AccountRules {
    /// Parses the file.
    ///
    /// # Errors
    /// A line that says what is wrong.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| error.message().replace('\n', " "))
    }

    /// Returns the user as whom a worker runs for `account`.
    ///
    /// # Errors
    /// [`AccountRefusal`], if there is none or it may not be one.
    pub(super) fn admit(
        &self,
        account: &str,
        user: Option<LocalUser>,
    ) -> Result<LocalUser, AccountRefusal> {
        let named = || account.to_owned();
        if !self.accounts.iter().any(|listed| listed == account) {
            return Err(AccountRefusal::NotListed(named()));
        }
        let Some(mut user) = user else {
            return Err(AccountRefusal::Unknown(named()));
        };
        if user.uid == 0 || user.gid == 0 {
            return Err(AccountRefusal::Root(named()));
        }
        if user.uid < self.minimum_uid {
            return Err(AccountRefusal::System {
                account: named(),
                uid: user.uid,
                minimum: self.minimum_uid,
            });
        }
        // Root's group reads what is meant for root.
        user.groups.retain(|&group| group != 0);
        Ok(user)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(uid: u32, gid: u32, groups: &[u32]) -> Option<LocalUser> {
        let groups = groups.to_vec();
        Some(LocalUser { uid, gid, groups })
    }

    #[test]
    fn only_listed_people_are_admitted_whatever_the_file_says() {
        let rules = "server = \"longhaul\"\naccounts = [\"ana\", \"root\", \"daemon\"]\n";
        let rules = AccountRules::parse(rules).unwrap();
        let admitted = rules
            .admit("ana", user(1001, 1001, &[1001, 0, 50]))
            .unwrap();
        assert_eq!(admitted.groups, [1001, 50], "not root's group");
        let refused = |account: &str, user| rules.admit(account, user).unwrap_err();
        assert!(matches!(
            refused("ben", user(1002, 1002, &[])),
            AccountRefusal::NotListed(_)
        ));
        assert!(matches!(refused("ana", None), AccountRefusal::Unknown(_)));
        assert!(matches!(
            refused("root", user(0, 0, &[])),
            AccountRefusal::Root(_)
        ));
        assert!(matches!(
            refused("ana", user(0, 1001, &[])),
            AccountRefusal::Root(_)
        ));
        assert!(matches!(
            refused("ana", user(1001, 0, &[])),
            AccountRefusal::Root(_)
        ));
        let system = refused("daemon", user(2, 2, &[]));
        assert!(matches!(
            system,
            AccountRefusal::System { minimum: 1000, .. }
        ));
        let lowest = "server = \"x\"\naccounts = [\"root\"]\nminimum-uid = 0\n";
        let rules = AccountRules::parse(lowest).unwrap();
        assert!(rules.admit("root", user(0, 0, &[])).is_err());
    }

    #[test]
    fn unknown_words_in_the_file_are_errors() {
        for wrong in ["", "server = 1", "server = \"x\"\naccounts = []\nuid = 3\n"] {
            let error = AccountRules::parse(wrong).unwrap_err();
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
