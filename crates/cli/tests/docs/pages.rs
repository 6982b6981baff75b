//! The pages to check: `README.md`, `CONTRIBUTING.md` and the files in `docs/`.

use std::path::{Path, PathBuf};

use crate::page::{self, Page};
use crate::programs::PROGRAMS;

/// A page and its name in messages.
pub struct Doc {
    pub name: String,
    pub page: Page,
}

/// Returns the project's folder.
pub fn root() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    crates
        .and_then(Path::parent)
        .unwrap_or(Path::new("/"))
        .to_owned()
}

/// Returns the text of a file of the project.
pub fn text(name: &str) -> String {
    let file = root().join(name);
    std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Returns every page. Pages in `docs/results/` are written by a program.
pub fn all() -> Vec<Doc> {
    let mut names = vec!["README.md".to_owned(), "CONTRIBUTING.md".to_owned()];
    let entries = std::fs::read_dir(root().join("docs")).unwrap();
    for entry in entries {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".md") {
            names.push(format!("docs/{name}"));
        }
    }
    names.sort();
    names.into_iter().map(|name| read(&name)).collect()
}

fn read(name: &str) -> Doc {
    let page = page::read(&text(name), &PROGRAMS).unwrap_or_else(|why| panic!("{name}: {why}"));
    Doc {
        name: name.to_owned(),
        page,
    }
}
