//! `lget SRC [DST]`: fetches one source, to the current directory if no destination is named.

use std::ffi::OsString;

use clap::{Args, Command};

use super::{AliasError, Translation};
use crate::cp::Cp;

/// Argument of `longhaul cp` that holds the paths.
const PATHS: &str = "paths";

/// Translates a command line of `lget`, whose options are those of `longhaul cp`.
///
/// # Errors
/// The command line is invalid.
pub fn translate(arguments: Vec<OsString>) -> Result<Translation, AliasError> {
    let matches = command().try_get_matches_from(&arguments)?;
    let paths = matches.get_many::<OsString>(PATHS);
    let has_destination = paths.is_some_and(|paths| paths.len() > 1);
    let mut words: Vec<OsString> = ["longhaul", "cp"].map(OsString::from).to_vec();
    words.extend(arguments.into_iter().skip(1));
    if !has_destination {
        words.push(".".into());
    }
    Ok(Translation {
        arguments: words,
        notes: Vec::new(),
    })
}

fn command() -> Command {
    Cp::augment_args(Command::new("lget"))
        .about("Fetch a file or a tree, with the options of longhaul cp")
        .long_about(None::<&'static str>)
        .override_usage("lget [OPTIONS] <SRC> [DST]")
        .mut_arg(PATHS, |paths| {
            paths
                .num_args(1..=2)
                .help("The source, then the destination [default: the current directory]")
                .long_help(None::<&'static str>)
        })
}
