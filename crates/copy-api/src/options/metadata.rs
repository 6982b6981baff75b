//! Options that select what is kept of metadata, and how symbolic links are treated.

use clap::Args;
use longhaul_transfer::{
    MetadataChanges, ModeChanges, ModeChangesError, OwnerChange, OwnerChangeError, Preservation,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Heading of the options in the help.
pub(super) const HEADING: &str = "Metadata and links";
/// Argument that stands for several others.
const ARCHIVE: &str = "archive";

/// Options that select what is kept of metadata, besides permissions and modification times.
// Unused ones are left out, so that older releases can read stored jobs.
#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct MetadataOptions {
    /// Keep everything: -r -H --owner --group --acls --xattrs --set-id --specials.
    #[arg(help_heading = HEADING, short, long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub archive: bool,
    /// Keep owners, by name if the other end knows the name (needs root there, or serve
    /// --allow-owners).
    #[arg(help_heading = HEADING, long)]
    #[arg(default_value_if(ARCHIVE, "true", "true"))]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub owner: bool,
    /// Keep groups, in the same way.
    #[arg(help_heading = HEADING, long)]
    #[arg(default_value_if(ARCHIVE, "true", "true"))]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub group: bool,
    /// Keep the numbers of owners and groups, whatever their names.
    #[arg(help_heading = HEADING, long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub numeric_ids: bool,
    /// Keep POSIX ACLs, by number.
    #[arg(help_heading = HEADING, long)]
    #[arg(default_value_if(ARCHIVE, "true", "true"))]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub acls: bool,
    /// Keep extended attributes.
    #[arg(help_heading = HEADING, long)]
    #[arg(default_value_if(ARCHIVE, "true", "true"))]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub xattrs: bool,
    /// Keep set-user-ID, set-group-ID and sticky bits.
    #[arg(help_heading = HEADING, long)]
    #[arg(default_value_if(ARCHIVE, "true", "true"))]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub set_id: bool,
    /// Copy devices, FIFOs and sockets as what they are (devices need root, or serve
    /// --allow-owners).
    #[arg(help_heading = HEADING, long)]
    #[arg(default_value_if(ARCHIVE, "true", "true"))]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub specials: bool,
    /// Copy what symbolic links lead to, instead of the links.
    #[arg(help_heading = HEADING, short = 'L', long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub copy_links: bool,
    /// Leave out symbolic links that lead out of their source.
    #[arg(help_heading = HEADING, long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub safe_links: bool,
    /// Change permissions, as in D755,F644 or go-w,a+rX: D is for directories, F for files.
    #[arg(help_heading = HEADING, long, value_name = "CHANGES", value_parser = changes)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chmod: Option<String>,
    /// Give everything this owner: USER, USER:GROUP or :GROUP, by name at the destination or by
    /// number.
    #[arg(help_heading = HEADING, long, value_name = "USER:GROUP", value_parser = owner)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chown: Option<String>,
}

fn changes(text: &str) -> Result<String, ModeChangesError> {
    ModeChanges::parse(text, 0).map(|_| text.to_owned())
}

fn owner(text: &str) -> Result<String, OwnerChangeError> {
    OwnerChange::parse(text).map(|_| text.to_owned())
}

impl MetadataOptions {
    /// Returns the changes of metadata that are asked for. `umask` limits those that name no class
    /// of users. An invalid one, which no command line has, changes nothing.
    #[must_use]
    pub fn changes(&self, umask: u32) -> MetadataChanges {
        let mode = self
            .chmod
            .as_deref()
            .map(|text| ModeChanges::parse(text, umask));
        let owner = self.chown.as_deref().map(OwnerChange::parse);
        MetadataChanges::new(
            mode.and_then(Result::ok).unwrap_or_default(),
            owner.and_then(Result::ok).unwrap_or_default(),
            self.set_id || self.archive,
        )
    }

    /// Returns what is kept.
    #[must_use]
    pub fn preservation(&self) -> Preservation {
        let chown = self.chown.as_deref().map(OwnerChange::parse);
        let chown = chown.and_then(Result::ok).unwrap_or_default();
        let chmod = self
            .chmod
            .as_deref()
            .map(|text| ModeChanges::parse(text, 0));
        let sets_special_bits =
            chmod.is_some_and(|changes| changes.is_ok_and(|changes| changes.set_special_bits()));
        Preservation {
            owner: self.owner || self.archive || chown.sets_user(),
            group: self.group || self.archive || chown.sets_group(),
            numeric_ids: self.numeric_ids,
            acls: self.acls || self.archive,
            xattrs: self.xattrs || self.archive,
            special_files: self.specials || self.archive,
            special_bits: self.set_id || self.archive || sets_special_bits,
            copy_links: self.copy_links,
            safe_links: self.safe_links,
        }
    }

    /// Returns the first of these options that is given.
    #[must_use]
    pub fn first_given(&self) -> Option<&'static str> {
        let flags = [
            (self.archive, "--archive"),
            (self.owner, "--owner"),
            (self.group, "--group"),
            (self.numeric_ids, "--numeric-ids"),
            (self.acls, "--acls"),
            (self.xattrs, "--xattrs"),
            (self.set_id, "--set-id"),
            (self.specials, "--specials"),
            (self.copy_links, "--copy-links"),
            (self.safe_links, "--safe-links"),
            (self.chmod.is_some(), "--chmod"),
            (self.chown.is_some(), "--chown"),
        ];
        let given = flags.into_iter().find(|(given, _)| *given);
        given.map(|(_, flag)| flag)
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches};

    use super::super::CopyOptions;
    use super::*;

    fn parse(arguments: &[&str]) -> CopyOptions {
        let command = CopyOptions::augment_args(Command::new("cp").no_binary_name(true));
        let matches = command.try_get_matches_from(arguments).unwrap();
        CopyOptions::from_arg_matches(&matches).unwrap()
    }

    #[test]
    fn archive_stands_for_the_single_options() {
        let options = parse(&["-a"]);
        assert!(options.recursive && options.hard_links);
        let single = parse(&[
            "-r",
            "-H",
            "--owner",
            "--group",
            "--acls",
            "--xattrs",
            "--set-id",
            "--specials",
        ]);
        assert_eq!(
            CopyOptions {
                metadata: MetadataOptions {
                    archive: false,
                    ..options.metadata.clone()
                },
                ..options.clone()
            },
            single
        );
        assert_eq!(
            options.metadata.preservation(),
            single.metadata.preservation()
        );
        assert!(parse(&[]).metadata.preservation().is_empty());
        assert_eq!(options.metadata.first_given(), Some("--archive"));
    }

    #[test]
    fn changes_imply_what_they_need() {
        let kept = |arguments: &[&str]| parse(arguments).metadata.preservation();
        let keeps = kept(&["--chown", "ana:staff"]);
        assert!(keeps.owner && keeps.group && !keeps.special_bits);
        assert!(!kept(&["--chown", "ana"]).group);
        assert!(kept(&["--chmod", "Dg+s"]).special_bits);
        assert!(kept(&["--chmod", "go-w"]).is_empty());
        for wrong in [["--chmod", "rwx"], ["--chown", ":"]] {
            let command = CopyOptions::augment_args(Command::new("cp").no_binary_name(true));
            assert!(command.try_get_matches_from(wrong).is_err(), "{wrong:?}");
        }
    }
}
