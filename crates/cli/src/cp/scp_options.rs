//! Flags of scp that `cp` accepts for familiarity. Some hold anyway; the others are refused with a
//! hint what to use instead.

use anyhow::{Result, bail};
use clap::Args;

/// Flags of scp.
#[derive(Args, Default)]
pub struct ScpOptions {
    /// Keep permissions and modification times. They always are; this is for scp users.
    #[arg(short = 'p')]
    keep_times: bool,
    /// Print what ssh does, and the decisions of the copy.
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// Compress data while that makes the copy faster, which is the default (--compress auto).
    // `compress` is the ID of --compress.
    #[arg(id = "compress_auto", short = 'C', help_heading = "Network")]
    pub compress: bool,
    #[arg(short = 'l', hide = true, value_name = "LIMIT")]
    limit: Option<String>,
    #[arg(short = '3', hide = true)]
    through_here: bool,
    #[arg(short = 'A', hide = true)]
    forward_agent: bool,
    #[arg(short = 'c', hide = true, value_name = "CIPHER")]
    cipher: Option<String>,
    #[arg(short = 'D', hide = true, value_name = "PROGRAM")]
    sftp_server: Option<String>,
    #[arg(short = 'O', hide = true)]
    scp_protocol: bool,
    #[arg(short = 's', hide = true)]
    sftp_protocol: bool,
    #[arg(short = 'R', hide = true)]
    from_source: bool,
    #[arg(short = 'T', hide = true)]
    lax_names: bool,
    #[arg(short = 'X', hide = true, value_name = "OPTION")]
    sftp_option: Option<String>,
}

impl ScpOptions {
    /// Refuses flags that `cp` does not support.
    ///
    /// # Errors
    /// One of these flags is given. The message says what to use.
    pub fn check(&self) -> Result<()> {
        let flags = [
            (
                self.limit.is_some(),
                "-l",
                "a copy has no rate limit: a depot on the --route can have one (max_rate), and a \
                 copy yields to other traffic by retiring streams",
            ),
            (
                self.through_here,
                "-3",
                "data between two hosts goes directly: to pass it through this machine, copy here \
                 first, then on",
            ),
            (
                self.forward_agent,
                "-A",
                "neither host logs in to the other, so no ssh agent needs forwarding: leave it out",
            ),
            (
                self.cipher.is_some(),
                "-c",
                "the data does not go through ssh but over TLS 1.3, which chooses its cipher: for \
                 the login use -o Ciphers=...",
            ),
            (
                self.scp_protocol
                    || self.sftp_protocol
                    || self.sftp_server.is_some()
                    || self.sftp_option.is_some(),
                "-D, -O, -s and -X",
                "longhaul speaks a protocol of its own, and sftp by itself if the host lacks \
                 longhaul: leave it out, or name the path as sftp://host/path",
            ),
            (
                self.from_source,
                "-R",
                "data between two hosts goes directly anyway: leave it out",
            ),
            (
                self.lax_names,
                "-T",
                "names are bytes and no shell reads them, so there is nothing to relax: leave it \
                 out",
            ),
        ];
        match flags.into_iter().find(|(given, ..)| *given) {
            None => Ok(()),
            Some((_, flag, instead)) => bail!("scp's {flag}: {instead}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: ScpOptions,
    }

    #[test]
    fn flags_of_scp_are_accepted_or_refused_with_a_hint() {
        let check = |flags: &[&str]| {
            let words = std::iter::once("cp").chain(flags.iter().copied());
            Line::try_parse_from(words).unwrap().options.check()
        };
        assert!(check(&["-p", "-v", "-C"]).is_ok());
        for refused in [
            &["-l", "8000"][..],
            &["-3"],
            &["-A"],
            &["-c", "aes256-ctr"],
            &["-D", "x"],
            &["-O"],
            &["-s"],
            &["-R"],
            &["-T"],
            &["-X", "nrequests=1"],
        ] {
            let error = check(refused).unwrap_err().to_string();
            assert!(
                error.contains(refused[0]) && !error.contains('\n'),
                "{error}"
            );
        }
    }
}
