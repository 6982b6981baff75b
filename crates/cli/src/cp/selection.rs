//! The filter that a command line asks for.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use jiff::{Timestamp, Zoned};
use longhaul_copy_api::FilterOptions;
use longhaul_filter::{Filter, FilterRules, NameRule, parse_list, parse_rules};

use crate::{home, moment};

/// Maximum size of a file with patterns, in bytes.
const MAX_PATTERN_FILE_BYTES: u64 = 1 << 20;
/// Maximum size of a list of files, in bytes.
const MAX_LIST_BYTES: u64 = 1 << 30;

/// Checks the options as far as that is possible without reading a file.
///
/// # Errors
/// A pattern or a time is invalid, or options do not fit together.
pub fn check(options: &FilterOptions, sources: usize, now: &Zoned) -> Result<()> {
    if options.files_from.is_some() && sources != 1 {
        bail!("--files-from is for one source: its paths lie below that");
    }
    let rules = options_only(options, now)?;
    Filter::new(rules).map_err(|error| anyhow!("--exclude or --include: {error}"))?;
    Ok(())
}

/// Returns the filter, and reads the files that the options name.
///
/// # Errors
/// As [`check`], or a file cannot be read.
pub fn filter(options: &FilterOptions) -> Result<Arc<Filter>> {
    let filter = Filter::new(rules(options, &Zoned::now())?);
    Ok(Arc::new(filter.map_err(|error| {
        anyhow!("--exclude or --include: {error}")
    })?))
}

/// Returns a filter of the same names that hides nothing for its size or time.
///
/// # Errors
/// As [`filter`].
pub fn for_names(filter: &Filter) -> Result<Filter> {
    let names = Filter::new(filter.rules().for_names());
    names.map_err(|error| anyhow!("--exclude or --include: {error}"))
}

fn rules(options: &FilterOptions, now: &Zoned) -> Result<FilterRules> {
    let mut rules = options_only(options, now)?;
    for file in &options.exclude_from {
        let text = read(file, MAX_PATTERN_FILE_BYTES)?;
        let parsed = parse_rules(&text);
        rules
            .names
            .extend(parsed.with_context(|| home::display_path(file))?);
    }
    if let Some(file) = &options.files_from {
        let separator = if options.from0 { 0 } else { b'\n' };
        rules.listed = Some(parse_list(&read(file, MAX_LIST_BYTES)?, separator));
    }
    Ok(rules)
}

/// Returns the rules that are in the options themselves.
fn options_only(options: &FilterOptions, now: &Zoned) -> Result<FilterRules> {
    let include = options
        .include
        .iter()
        .map(|pattern| NameRule::include(pattern.as_str()));
    let exclude = options
        .exclude
        .iter()
        .map(|pattern| NameRule::exclude(pattern.as_str()));
    let newer = options
        .newer
        .as_deref()
        .map(|text| past("--newer", text, now));
    let older = options
        .older
        .as_deref()
        .map(|text| past("--older", text, now));
    Ok(FilterRules {
        names: include.chain(exclude).collect(),
        listed: None,
        ignore_files: !options.no_ignore_files,
        newer_ms: newer.transpose()?,
        older_ms: older.transpose()?,
        min_bytes: options.min_size,
        max_bytes: options.max_size,
        one_file_system: options.one_file_system,
    })
}

/// Parses a moment in the past, in milliseconds since 1970: an age, or a moment.
fn past(flag: &str, text: &str, now: &Zoned) -> Result<i64> {
    if let Ok(age) = quantities::Time::with_unit(text.trim()) {
        let age = i64::try_from(age.0.as_millis()).unwrap_or(i64::MAX);
        return Ok(now.timestamp().as_millisecond().saturating_sub(age));
    }
    if let Ok(moment) = text.trim().parse::<Timestamp>() {
        return Ok(moment.as_millisecond());
    }
    let moment = moment::read(text, now).map_err(|error| anyhow!("{flag} {text}: {error}"))?;
    Ok(moment.timestamp().as_millisecond())
}

fn read(file: &Path, max_bytes: u64) -> Result<Vec<u8>> {
    let shown = || format!("cannot read {}", home::display_path(file));
    let mut text = Vec::new();
    let mut limited: Box<dyn Read> = match file == Path::new("-") {
        true => Box::new(std::io::stdin().lock()),
        false => Box::new(std::fs::File::open(file).with_context(shown)?),
    };
    limited
        .by_ref()
        .take(max_bytes + 1)
        .read_to_end(&mut text)
        .with_context(shown)?;
    match u64::try_from(text.len()) {
        Ok(length) if length <= max_bytes => Ok(text),
        _ => bail!("{} is too large: split it", home::display_path(file)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Zoned {
        "2026-11-27T12:00:00+00:00[UTC]".parse().unwrap()
    }

    #[test]
    fn times_are_ages_or_moments() {
        let at = |text| past("--newer", text, &now()).unwrap();
        let day = 86_400_000;
        let noon = now().timestamp().as_millisecond();
        assert_eq!(at("1 d"), noon - day);
        assert_eq!(at("2026-11-26"), noon - day - day / 2);
        assert_eq!(at("2026-11-26 12:00"), noon - day);
        let error = past("--older", "soon", &now()).unwrap_err().to_string();
        assert!(
            error.starts_with("--older soon: ") && !error.contains('\n'),
            "{error}"
        );
    }

    #[test]
    fn includes_precede_excludes() {
        let options = FilterOptions {
            exclude: vec!["*".to_owned()],
            include: vec!["*.c".to_owned()],
            ..FilterOptions::default()
        };
        let filter = Filter::new(rules(&options, &now()).unwrap()).unwrap();
        assert!(filter.takes_name(b"a.c", false) && !filter.takes_name(b"a.o", false));
        assert!(filter.rules().ignore_files);
    }

    #[test]
    fn invalid_filters_are_refused_in_one_line() {
        let options = FilterOptions {
            exclude: vec!["[a".to_owned()],
            ..FilterOptions::default()
        };
        let error = check(&options, 1, &now()).unwrap_err().to_string();
        assert!(error.starts_with("--exclude or --include: ") && !error.contains('\n'));
        let options = FilterOptions {
            files_from: Some("list".into()),
            ..FilterOptions::default()
        };
        assert!(check(&options, 2, &now()).is_err());
    }
}
