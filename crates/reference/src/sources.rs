//! The sources: the crates that make up the command, their files, and the string literals in them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use crate::template;

/// Folder in `crates/` of the crate that builds the `longhaul` command.
const COMMAND_CRATE: &str = "cli";

/// Returns true if a service registers its metrics in this file.
pub(crate) fn has_metrics(path: &Path) -> bool {
    path.ends_with("src/metrics.rs")
        || path
            .parent()
            .is_some_and(|folder| folder.ends_with("src/metrics"))
}

/// A parsed source file.
pub struct Source {
    /// Folder of its crate in `crates/`.
    pub crate_name: String,
    /// Path from the project's directory.
    pub path: PathBuf,
    /// Its items.
    pub file: syn::File,
}

/// Reads the sources of every crate that the command depends on, without tests.
///
/// # Errors
/// A file cannot be read or parsed.
pub fn read(project: &Path) -> Result<Vec<Source>> {
    read_files(project, |_| true)
}

/// Reads the sources of these crates in which services register their metrics.
///
/// # Errors
/// A file cannot be read or parsed.
pub fn read_metrics(project: &Path) -> Result<Vec<Source>> {
    read_files(project, has_metrics)
}

fn read_files(project: &Path, is_needed: impl Fn(&Path) -> bool) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for crate_name in command_crates(project)? {
        for path in files(&project.join("crates").join(&crate_name).join("src"))? {
            if !is_needed(&path) {
                continue;
            }
            let text = read_text(&path)?;
            let file = syn::parse_file(&text)
                .with_context(|| format!("cannot parse {}", path.display()))?;
            let path = path.strip_prefix(project).unwrap_or(&path).to_owned();
            sources.push(Source {
                crate_name: crate_name.clone(),
                path,
                file,
            });
        }
    }
    Ok(sources)
}

/// Returns the templates of all string literals of the sources.
#[must_use]
pub fn templates(sources: &[Source]) -> BTreeSet<String> {
    let mut literals = Literals::default();
    for source in sources {
        literals.visit_file(&source.file);
    }
    let texts = literals.texts.iter();
    texts.map(|text| template::from_format(text)).collect()
}

/// Returns the string literals in tokens, such as the arguments of a macro, in their order.
#[must_use]
pub fn literals_in(tokens: &TokenStream) -> Vec<String> {
    let mut texts = Vec::new();
    for token in tokens.clone() {
        match token {
            TokenTree::Group(group) => texts.extend(literals_in(&group.stream())),
            TokenTree::Literal(literal) => {
                if let syn::Lit::Str(text) = syn::Lit::new(literal) {
                    texts.push(text.value());
                }
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
    texts
}

/// Returns true if `attributes` make an item a part of the tests.
#[must_use]
pub fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Path>()
                .is_ok_and(|condition| condition.is_ident("test"))
    })
}

/// Returns the doc comment in `attributes`, with its line breaks.
#[must_use]
pub fn doc_comment(attributes: &[syn::Attribute]) -> String {
    let mut lines = Vec::new();
    for attribute in attributes {
        if let syn::Meta::NameValue(meta) = &attribute.meta
            && meta.path.is_ident("doc")
            && let syn::Expr::Lit(value) = &meta.value
            && let syn::Lit::Str(text) = &value.lit
        {
            lines.push(text.value().trim().to_owned());
        }
    }
    lines.join("\n").trim().to_owned()
}

/// Collector of string literals, those of macros and attributes included.
#[derive(Default)]
struct Literals {
    texts: Vec<String>,
}

impl<'ast> Visit<'ast> for Literals {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_lit_str(&mut self, text: &'ast syn::LitStr) {
        self.texts.push(text.value());
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.texts.extend(literals_in(&call.tokens));
    }

    fn visit_meta_list(&mut self, list: &'ast syn::MetaList) {
        self.texts.extend(literals_in(&list.tokens));
    }
}

/// Returns the folders of the command's crate and of all crates that it depends on.
fn command_crates(project: &Path) -> Result<Vec<String>> {
    let workspace = manifest(&project.join("Cargo.toml"))?;
    let mut folders = BTreeMap::new();
    let shared = workspace
        .get("workspace")
        .and_then(|table| table.get("dependencies"))
        .and_then(toml::Value::as_table);
    for (name, value) in shared.into_iter().flatten() {
        let path = value.get("path").and_then(toml::Value::as_str);
        if let Some(folder) = path.and_then(|path| path.strip_prefix("crates/")) {
            folders.insert(name.clone(), folder.to_owned());
        }
    }
    let mut crates = vec![COMMAND_CRATE.to_owned()];
    let mut next = 0;
    while let Some(name) = crates.get(next) {
        let own = manifest(&project.join("crates").join(name).join("Cargo.toml"))?;
        // Some are needed on some platforms only.
        let targets = own.get("target").and_then(toml::Value::as_table);
        let targets = targets.into_iter().flat_map(toml::Table::values);
        let on_some = targets.filter_map(|target| target.get("dependencies"));
        let tables = own.get("dependencies").into_iter().chain(on_some);
        let needed = tables.filter_map(toml::Value::as_table);
        for name in needed.flat_map(toml::Table::keys) {
            if let Some(folder) = folders.get(name).filter(|folder| !crates.contains(folder)) {
                crates.push(folder.clone());
            }
        }
        next += 1;
    }
    crates.sort();
    Ok(crates)
}

fn manifest(path: &Path) -> Result<toml::Table> {
    let parsed = read_text(path)?.parse();
    parsed.with_context(|| format!("cannot parse {}", path.display()))
}

fn read_text(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Returns the Rust files in a folder, in order of their paths, except files of tests.
///
/// # Errors
/// A folder cannot be read.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            if !path.ends_with("tests") && !path.ends_with("fuzzing") {
                found.extend(files(&path)?);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && !path.ends_with("tests.rs")
        {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_of_macros_and_attributes_are_found() {
        let text = r#"
            // "comment"
            #[error("in an attribute of {file}")]
            struct E;
            fn f() { bail!("in a macro: {}", ["nested"]); let c = '"'; g("plain") }
            #[cfg(test)]
            mod tests { const T: &str = "test"; }
        "#;
        let mut literals = Literals::default();
        literals.visit_file(&syn::parse_file(text).unwrap());
        assert_eq!(
            literals.texts,
            [
                "in an attribute of {file}",
                "in a macro: {}",
                "nested",
                "plain"
            ]
        );
    }

    #[test]
    fn doc_comments_keep_their_lines() {
        let item: syn::ItemStruct = syn::parse_quote! {
            /// One.
            ///
            /// Two.
            #[derive(Debug)]
            struct S;
        };
        assert_eq!(doc_comment(&item.attrs), "One.\n\nTwo.");
    }
}
