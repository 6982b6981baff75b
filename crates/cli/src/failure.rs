//! Errors as they are shown to people.

/// Formats an error and its causes in one line. A cause that the text already contains is left out.
pub fn format_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if line.is_empty() {
            line = cause;
        } else if !line.contains(&cause) {
            line.push_str(": ");
            line.push_str(&cause);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};
    use longhaul_session::Identity;

    use super::*;

    #[test]
    fn each_cause_appears_once() {
        let missing = anyhow!(Identity::load("/nowhere/identity".as_ref()).unwrap_err());
        assert_eq!(
            format_line(&missing),
            "cannot read the identity /nowhere/identity: No such file or directory (os error 2)"
        );
        let chain = Err::<(), _>(anyhow!("inner")).context("outer").unwrap_err();
        assert_eq!(format_line(&chain), "outer: inner");
    }
}
