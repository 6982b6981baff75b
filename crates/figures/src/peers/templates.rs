//! Templates of commands and of their files.

use super::need;
use anyhow::{Context, Result, bail};
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::place::write;
use crate::children::succeed_within;

/// Maximum time to make keys, a repository or a database, or to compile an example.
const PREPARATION_TIMEOUT: Duration = Duration::from_secs(120);

/// Templates whose values are those of one server, or of one client of it.
pub struct Templates {
    environment: Environment<'static>,
    folder: PathBuf,
    values: Value,
}

impl Templates {
    /// Makes templates with these values, and `settings` for a folder of settings.
    pub fn new(folder: &Path, values: Value) -> Self {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_keep_trailing_newline(true);
        environment.add_function("path", |program: &str| {
            let found = need(program).and_then(|need| need.find());
            found.map(|path| path.display().to_string()).map_err(error)
        });
        environment.add_function("example", |file: &str| example(file).map_err(error));
        let settings = folder.to_path_buf();
        environment.add_function("read", move |file: &str| {
            let text = std::fs::read_to_string(settings.join(file));
            text.map_err(|reason| error(reason.into()))
        });
        Self {
            environment,
            folder: folder.to_path_buf(),
            values: minijinja::context!(settings => folder.display().to_string(), ..values),
        }
    }

    /// Renders one template.
    ///
    /// # Errors
    /// It is not valid, names a value that is not there, or needs a program that is missing.
    pub fn text(&self, template: &str) -> Result<String> {
        let text = self.environment.render_str(template, &self.values);
        text.with_context(|| format!("cannot render {template:?}"))
    }

    /// Renders arguments, without those that are empty.
    ///
    /// # Errors
    /// As [`Templates::text`].
    pub fn arguments(&self, templates: &[String]) -> Result<Vec<String>> {
        let texts = templates.iter().map(|template| self.text(template));
        let is_given = |text: &Result<String>| !matches!(text, Ok(text) if text.is_empty());
        texts.filter(is_given).collect()
    }

    /// Writes files by their names in the folder of settings.
    ///
    /// # Errors
    /// As [`Templates::text`], or a file cannot be written.
    pub fn write(&self, files: &BTreeMap<String, String>) -> Result<()> {
        files.iter().try_for_each(|(name, template)| {
            write(&self.folder.join(self.text(name)?), &self.text(template)?)
        })
    }

    /// Runs a script in the folder of settings, each of whose commands must succeed.
    ///
    /// # Errors
    /// As [`Templates::text`], or the script fails.
    pub fn run(&self, script: &str, name: &str) -> Result<()> {
        if script.is_empty() {
            return Ok(());
        }
        let mut command = Command::new(need("sh")?.find()?);
        command
            .args(["-e", "-c", &self.text(script)?])
            .env("HOME", &self.folder)
            .current_dir(&self.folder);
        succeed_within(command, name, PREPARATION_TIMEOUT).map(drop)
    }
}

fn error(reason: anyhow::Error) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("{reason:#}"))
}

/// Returns a file of this project's examples.
fn example(file: &str) -> Result<&'static str> {
    macro_rules! examples {
        ($($name:literal)*) => {
            match file {
                $($name => Ok(include_str!(concat!("../../../../examples/", $name))),)*
                _ => bail!("there is no example {file}"),
            }
        };
    }
    examples!("python/fetch_requests.py" "python/fetch_asyncio.py" "java/Fetch.java" "go/fetch.go")
}
