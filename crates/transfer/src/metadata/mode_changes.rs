//! Changes of permissions as `chmod` and rsync's `--chmod` name them.

/// Bits that may be changed.
const CHANGEABLE_BITS: u32 = 0o7777;
/// Set-user-ID, set-group-ID and sticky bit.
const SPECIAL_BITS: u32 = 0o7000;
/// Execute bits of all classes of users.
const EXECUTE: u32 = 0o111;

/// Changes of permissions, in the order in which they apply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModeChanges(Vec<ModeChange>);

/// One change: bits to keep, and bits to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ModeChange {
    entries: ChangedEntries,
    kept: u32,
    set: u32,
    /// Execute bits to set on directories, and on files that had one.
    set_if_executable: u32,
}

/// Entries that a change applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChangedEntries {
    All,
    Directories,
    Files,
}

/// Error of a change that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "--chmod {0}: not a change of permissions; write octal digits or [ugoa][+-=][rwxXst], with D \
     (directories) or F (files) in front if needed, as in D755,F644 or go-w,a+rX"
)]
pub struct ModeChangesError(String);

/// Kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Add,
    Remove,
    Assign,
}

impl ModeChanges {
    /// Parses changes that are separated by commas. A change that names no class of users leaves
    /// out the bits in `umask`, as in chmod(1).
    ///
    /// # Errors
    /// The text is no list of changes.
    pub fn parse(text: &str, umask: u32) -> Result<Self, ModeChangesError> {
        let changes: Option<Vec<ModeChange>> = text
            .split(',')
            .map(|change| ModeChange::parse(change.trim(), umask))
            .collect();
        changes
            .map(Self)
            .ok_or_else(|| ModeChangesError(longhaul_proto::text::printable(text.as_bytes())))
    }

    /// Creates the change that removes the permissions in `umask` from every entry.
    #[must_use]
    pub(crate) fn without(umask: u32) -> Self {
        Self(vec![ModeChange {
            entries: ChangedEntries::All,
            kept: CHANGEABLE_BITS & !umask,
            set: 0,
            set_if_executable: 0,
        }])
    }

    /// Returns true if nothing is changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if a set-user-ID, set-group-ID or sticky bit may be set.
    #[must_use]
    pub fn set_special_bits(&self) -> bool {
        let sets = |change: &ModeChange| change.set & SPECIAL_BITS != 0;
        self.0.iter().any(sets)
    }

    /// Returns the mode bits of an entry after the changes.
    pub(crate) fn apply(&self, mode: u32, is_directory: bool) -> u32 {
        let was_executable = is_directory || mode & EXECUTE != 0;
        let applicable = self.0.iter().filter(|change| match change.entries {
            ChangedEntries::All => true,
            ChangedEntries::Directories => is_directory,
            ChangedEntries::Files => !is_directory,
        });
        applicable.fold(mode, |mode, change| {
            let more = match was_executable {
                true => change.set_if_executable,
                false => 0,
            };
            mode & change.kept | change.set | more
        })
    }
}

impl ModeChange {
    fn parse(text: &str, umask: u32) -> Option<Self> {
        let (entries, text) = match text.split_at_checked(1)? {
            ("D", rest) => (ChangedEntries::Directories, rest),
            ("F", rest) => (ChangedEntries::Files, rest),
            _ => (ChangedEntries::All, text),
        };
        let is_octal = !text.is_empty() && text.bytes().all(|byte| (b'0'..b'8').contains(&byte));
        if is_octal {
            let set = u32::from_str_radix(text, 8).ok()?;
            return (set <= CHANGEABLE_BITS).then_some(Self {
                entries,
                kept: 0,
                set,
                set_if_executable: 0,
            });
        }
        let at = text.find(['+', '-', '='])?;
        let (who, rest) = text.split_at_checked(at)?;
        let (operator, what) = rest.split_at_checked(1)?;
        let operator = match operator {
            "+" => Operator::Add,
            "-" => Operator::Remove,
            _ => Operator::Assign,
        };
        let classes = UserClasses::parse(who)?;
        let bits = classes.bits(what, umask)?;
        let all = bits.set | bits.set_if_executable;
        let (kept, set, set_if_executable) = match operator {
            Operator::Add => (CHANGEABLE_BITS, bits.set, bits.set_if_executable),
            Operator::Remove => (CHANGEABLE_BITS & !all, 0, 0),
            Operator::Assign => {
                let kept = CHANGEABLE_BITS & !classes.mask();
                (kept, bits.set, bits.set_if_executable)
            }
        };
        Some(Self {
            entries,
            kept,
            set,
            set_if_executable,
        })
    }
}

/// Classes of users: owner, group and others.
#[derive(Debug, Clone, Copy)]
struct UserClasses {
    /// A bit for each class: 0o100 for the owner, 0o010 for the group, 0o001 for others. Zero if
    /// none is named.
    named: u32,
}

/// Bits that the letters of a change stand for.
struct NamedBits {
    set: u32,
    set_if_executable: u32,
}

impl UserClasses {
    fn parse(letters: &str) -> Option<Self> {
        let named = letters.chars().try_fold(0, |named, letter| {
            let class = match letter {
                'u' => 0o100,
                'g' => 0o010,
                'o' => 0o001,
                'a' => 0o111,
                _ => return None,
            };
            Some(named | class)
        });
        Some(Self { named: named? })
    }

    /// Returns the classes, which are all if none is named.
    fn classes(self) -> u32 {
        match self.named {
            0 => 0o111,
            named => named,
        }
    }

    /// Returns the permissions of the classes.
    fn mask(self) -> u32 {
        self.classes() * 7
    }

    /// Returns the bits that `letters` name.
    fn bits(self, letters: &str, umask: u32) -> Option<NamedBits> {
        let allowed = match self.named {
            0 => !umask,
            _ => CHANGEABLE_BITS,
        };
        let mut bits = NamedBits {
            set: 0,
            set_if_executable: 0,
        };
        for letter in letters.chars() {
            match letter {
                'r' => bits.set |= (self.classes() * 4) & allowed,
                'w' => bits.set |= (self.classes() * 2) & allowed,
                'x' => bits.set |= self.classes() & allowed,
                'X' => bits.set_if_executable |= self.classes() & allowed,
                's' => {
                    let of_user = if self.classes() & 0o100 != 0 {
                        0o4000
                    } else {
                        0
                    };
                    let of_group = if self.classes() & 0o010 != 0 {
                        0o2000
                    } else {
                        0
                    };
                    bits.set |= of_user | of_group;
                }
                't' => bits.set |= 0o1000,
                _ => return None,
            }
        }
        Some(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(text: &str, mode: u32, is_directory: bool) -> u32 {
        let changes = ModeChanges::parse(text, 0o022).unwrap();
        changes.apply(mode, is_directory)
    }

    #[test]
    fn changes_apply_as_in_chmod() {
        for (text, mode, file, directory) in [
            ("644", 0o751, 0o644, 0o644),
            ("D755,F640", 0o777, 0o640, 0o755),
            ("u=rwX,go=rX", 0o600, 0o644, 0o755),
            ("a+X", 0o640, 0o640, 0o751),
            ("a+X", 0o740, 0o751, 0o751),
            ("go-w", 0o666, 0o644, 0o644),
            ("Dg+s,ug+w", 0o444, 0o664, 0o2664),
            ("u+s", 0o755, 0o4755, 0o4755),
            ("+t", 0o755, 0o1755, 0o1755),
            ("o=", 0o777, 0o770, 0o770),
            ("Du=rwx,Dg=rx,Do=,Fu=rw,Fgo=r", 0o777, 0o644, 0o750),
            // Without a class of users, the umask counts.
            ("+w", 0o444, 0o644, 0o644),
            ("a+w", 0o444, 0o666, 0o666),
            ("=rwx", 0o000, 0o755, 0o755),
            ("D2775,F664", 0o700, 0o664, 0o2775),
        ] {
            assert_eq!(changed(text, mode, false), file, "{text} of a file");
            assert_eq!(
                changed(text, mode, true),
                directory,
                "{text} of a directory"
            );
        }
    }

    #[test]
    fn later_changes_see_earlier_ones_but_not_new_execute_bits() {
        assert_eq!(changed("a-x,a+X", 0o755, false), 0o755);
        assert_eq!(changed("u+x,a+X", 0o644, false), 0o744);
    }

    #[test]
    fn wrong_changes_are_refused_in_one_line() {
        for wrong in [
            "", "7777777", "888", "u", "u+q", "z+r", "D", "u+r,,", "F9", "644x", "u>r",
        ] {
            let error = ModeChanges::parse(wrong, 0).unwrap_err().to_string();
            assert!(
                error.starts_with("--chmod ") && !error.contains('\n'),
                "{error}"
            );
        }
    }

    #[test]
    fn special_bits_are_noticed() {
        for (text, sets) in [
            ("644", false),
            ("D2775", true),
            ("u+s", true),
            ("u-s", false),
            ("+t", true),
            ("go-w", false),
            ("a=rX", false),
        ] {
            let changes = ModeChanges::parse(text, 0).unwrap();
            assert_eq!(changes.set_special_bits(), sets, "{text}");
        }
    }
}
