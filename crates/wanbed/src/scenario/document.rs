//! A TOML document in which every value knows its origin: a line of the file, or a `--set` on the
//! command line.

use toml::de::{DeTable, DeValue};

use super::Setting;
use crate::error::ScenarioError;

/// A value with its place.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Located {
    pub(super) place: String,
    pub(super) value: DocumentValue,
}

/// The kinds of value a scenario uses.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum DocumentValue {
    Text(String),
    Integer(i64),
    Float(f64),
    Bool(bool),
    List(Vec<Located>),
    /// Entries in the order of the file, in which nodes and links are numbered.
    Table(Vec<(String, Located)>),
}

impl DocumentValue {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            DocumentValue::Text(_) => "text",
            DocumentValue::Integer(_) => "an integer",
            DocumentValue::Float(_) => "a decimal number",
            DocumentValue::Bool(_) => "true or false",
            DocumentValue::List(_) => "a list",
            DocumentValue::Table(_) => "a table",
        }
    }
}

/// Reads `text`, the content of `file`, and applies the settings to it.
pub(super) fn parse(
    file: &str,
    text: &str,
    settings: &[Setting],
) -> Result<Located, ScenarioError> {
    let line_of = |offset: usize| {
        1 + text.as_bytes()[..offset.min(text.len())]
            .iter()
            .filter(|b| **b == b'\n')
            .count()
    };
    let table = DeTable::parse(text).map_err(|error| ScenarioError {
        place: format!(
            "{file}:{}",
            error.span().map_or(1, |span| line_of(span.start))
        ),
        field: String::new(),
        problem: format!("not TOML: {}", error.message().replace('\n', " ")),
    })?;
    let place = |offset: usize| format!("{file}:{}", line_of(offset));
    let mut root = Located {
        place: format!("{file}:1"),
        value: table_value(table.get_ref(), &place)?,
    };
    for setting in settings {
        apply(&mut root, setting)?;
    }
    Ok(root)
}

fn table_value(
    table: &DeTable<'_>,
    place: &impl Fn(usize) -> String,
) -> Result<DocumentValue, ScenarioError> {
    let mut entries: Vec<(usize, String, Located)> = Vec::new();
    for (key, value) in table {
        let at = key.span().start;
        let value = located(at, value.get_ref(), place, key.get_ref())?;
        entries.push((at, key.get_ref().to_string(), value));
    }
    entries.sort_by_key(|entry| entry.0);
    Ok(DocumentValue::Table(
        entries
            .into_iter()
            .map(|(_, key, value)| (key, value))
            .collect(),
    ))
}

fn located(
    at: usize,
    value: &DeValue<'_>,
    place: &impl Fn(usize) -> String,
    key: &str,
) -> Result<Located, ScenarioError> {
    let wrong = |problem: &str| ScenarioError {
        place: place(at),
        field: key.to_owned(),
        problem: problem.to_owned(),
    };
    let value = match value {
        DeValue::String(text) => DocumentValue::Text(text.to_string()),
        DeValue::Integer(number) => DocumentValue::Integer(
            i64::from_str_radix(number.as_str(), number.radix())
                .map_err(|_| wrong("the integer is too large"))?,
        ),
        DeValue::Float(number) => {
            DocumentValue::Float(number.as_str().parse().map_err(|_| wrong("not a number"))?)
        }
        DeValue::Boolean(value) => DocumentValue::Bool(*value),
        DeValue::Datetime(_) => {
            return Err(wrong("a scenario has no dates: put the value in quotes"));
        }
        DeValue::Array(items) => DocumentValue::List(
            items
                .iter()
                .map(|item| located(item.span().start, item.get_ref(), place, key))
                .collect::<Result<_, _>>()?,
        ),
        DeValue::Table(table) => table_value(table, place)?,
    };
    Ok(Located {
        place: place(at),
        value,
    })
}

/// Applies one `--set path=value` to the document. A `*` in the path stands for every key at that
/// level.
fn apply(root: &mut Located, setting: &Setting) -> Result<(), ScenarioError> {
    let place = format!("--set {}", setting.path);
    let wrong = |problem: String| ScenarioError {
        place: place.clone(),
        field: String::new(),
        problem,
    };
    // Anything that is not a TOML value is text, so that `loss=0.001%` and `congestion=cubic` need
    // no second quotes.
    let value = match DeTable::parse(&format!("v = {}", setting.value)) {
        Ok(table) => match table.get_ref().iter().next() {
            Some((_, value)) if table.get_ref().len() == 1 => {
                located(0, value.get_ref(), &|_| place.clone(), &setting.path)?
            }
            _ => return Err(wrong("the value is more than one TOML value".to_owned())),
        },
        Err(_) => Located {
            place: place.clone(),
            value: DocumentValue::Text(setting.value.clone()),
        },
    };
    let path: Vec<&str> = setting.path.split('.').collect();
    if path.iter().any(|part| part.is_empty()) {
        return Err(wrong(
            "the path has an empty part: write it like links.wan.loss".to_owned(),
        ));
    }
    match set_value(root, &path, &value) {
        Ok(0) => Err(wrong("`*` matches nothing here".to_owned())),
        Ok(_) => Ok(()),
        Err(problem) => Err(wrong(problem)),
    }
}

/// Sets a value. Returns the number of places.
fn set_value(at: &mut Located, path: &[&str], value: &Located) -> Result<usize, String> {
    let Some((first, rest)) = path.split_first() else {
        *at = value.clone();
        return Ok(1);
    };
    let kind = at.value.kind();
    let DocumentValue::Table(entries) = &mut at.value else {
        return Err(format!(
            "`{first}` would lie inside what is {kind}, not a table ({})",
            at.place
        ));
    };
    if *first == "*" {
        return entries
            .iter_mut()
            .map(|(_, entry)| set_value(entry, rest, value))
            .sum();
    }
    if let Some((_, entry)) = entries.iter_mut().find(|(key, _)| key == first) {
        return set_value(entry, rest, value);
    }
    let mut entry = Located {
        place: value.place.clone(),
        value: DocumentValue::Table(Vec::new()),
    };
    let count = set_value(&mut entry, rest, value)?;
    entries.push(((*first).to_owned(), entry));
    Ok(count)
}
