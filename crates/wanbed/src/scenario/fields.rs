//! Typed reading of a table: each field by name, with its origin in every error, and no field left
//! unread.

use super::document::{DocumentValue, Located};
use crate::error::ScenarioError;

type Result<T> = std::result::Result<T, ScenarioError>;

/// A value with its path in the document.
#[derive(Debug, Clone)]
pub(super) struct ScenarioField {
    pub(super) path: String,
    located: Located,
}

impl ScenarioField {
    pub(super) fn root(located: Located) -> Self {
        ScenarioField {
            path: String::new(),
            located,
        }
    }

    pub(super) fn wrong(&self, problem: impl Into<String>) -> ScenarioError {
        ScenarioError {
            place: self.located.place.clone(),
            field: self.path.clone(),
            problem: problem.into(),
        }
    }

    fn not(&self, wanted: &str) -> ScenarioError {
        self.wrong(format!(
            "is {}, should be {wanted}",
            self.located.value.kind()
        ))
    }

    fn child(&self, key: &str, located: Located) -> ScenarioField {
        let path = if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        };
        ScenarioField { path, located }
    }

    pub(super) fn text(&self) -> Result<&str> {
        match &self.located.value {
            DocumentValue::Text(text) => Ok(text),
            _ => Err(self.not("text in quotes")),
        }
    }

    /// Parses text as a quantity.
    pub(super) fn quantity<T>(
        &self,
        read: impl FnOnce(&str) -> std::result::Result<T, String>,
    ) -> Result<T> {
        read(self.text()?).map_err(|problem| self.wrong(problem))
    }

    /// Parses a probability, written as text or as a bare number.
    pub(super) fn probability(&self) -> Result<f64> {
        let text = match &self.located.value {
            DocumentValue::Float(number) => number.to_string(),
            DocumentValue::Integer(number) => number.to_string(),
            _ => self.text()?.to_owned(),
        };
        super::quantity::probability(&text).map_err(|problem| self.wrong(problem))
    }

    pub(super) fn integer(&self) -> Result<i64> {
        match &self.located.value {
            DocumentValue::Integer(number) => Ok(*number),
            _ => Err(self.not("an integer")),
        }
    }

    pub(super) fn boolean(&self) -> Result<bool> {
        match &self.located.value {
            DocumentValue::Bool(value) => Ok(*value),
            _ => Err(self.not("true or false")),
        }
    }

    /// Returns the text for a sysctl file, from text, an integer or a boolean.
    pub(super) fn sysctl_value(&self) -> Result<String> {
        match &self.located.value {
            DocumentValue::Text(text) => Ok(text.clone()),
            DocumentValue::Integer(number) => Ok(number.to_string()),
            DocumentValue::Bool(value) => Ok(u8::from(*value).to_string()),
            _ => Err(self.not("text or an integer")),
        }
    }

    pub(super) fn list(&self) -> Result<Vec<ScenarioField>> {
        match &self.located.value {
            DocumentValue::List(items) => Ok(items
                .iter()
                .enumerate()
                .map(|(at, item)| ScenarioField {
                    path: format!("{}[{at}]", self.path),
                    located: item.clone(),
                })
                .collect()),
            _ => Err(self.not("a list")),
        }
    }

    pub(super) fn is_list(&self) -> bool {
        matches!(self.located.value, DocumentValue::List(_))
    }

    pub(super) fn is_table(&self) -> bool {
        matches!(self.located.value, DocumentValue::Table(_))
    }

    /// Returns the entries of a table whose keys are names chosen by the scenario.
    pub(super) fn entries(&self) -> Result<Vec<(String, ScenarioField)>> {
        match &self.located.value {
            DocumentValue::Table(entries) => Ok(entries
                .iter()
                .map(|(key, value)| (key.clone(), self.child(key, value.clone())))
                .collect()),
            _ => Err(self.not("a table")),
        }
    }

    /// Returns the fields of a table whose keys the program knows.
    pub(super) fn fields(&self) -> Result<TableFields> {
        Ok(TableFields {
            of: self.clone(),
            unread: self.entries()?,
            known: Vec::new(),
        })
    }
}

/// Fields of one table; `finish` reports those that were not read.
#[derive(Debug)]
pub(super) struct TableFields {
    pub(super) of: ScenarioField,
    unread: Vec<(String, ScenarioField)>,
    known: Vec<&'static str>,
}

impl TableFields {
    pub(super) fn optional(&mut self, key: &'static str) -> Option<ScenarioField> {
        self.known.push(key);
        let at = self.unread.iter().position(|(name, _)| name == key)?;
        Some(self.unread.remove(at).1)
    }

    pub(super) fn required(&mut self, key: &'static str) -> Result<ScenarioField> {
        self.optional(key)
            .ok_or_else(|| self.of.wrong(format!("`{key}` is missing")))
    }

    pub(super) fn finish(self) -> Result<()> {
        match self.unread.first() {
            None => Ok(()),
            Some((_, field)) => Err(field.wrong(format!(
                "no such field here: there are {}",
                self.known.join(", ")
            ))),
        }
    }
}

/// Checks that a name can be a host name, a directory and a word on the command line.
pub(super) fn name(field: &ScenarioField, name: &str, longest: usize) -> Result<()> {
    let good = name.len() <= longest
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    if good {
        Ok(())
    } else {
        Err(field.wrong(format!(
            "a name here is 1 to {longest} letters, digits and '-', beginning with a letter or \
             digit"
        )))
    }
}
