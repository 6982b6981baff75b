//! The reference of errors: each message that an error type prints, with the variant's doc comment,
//! which says cause and remedy.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use syn::parse::{Parse, ParseStream};
use syn::visit::{self, Visit};

use crate::sources::{self, Source};
use crate::template;

/// Chapters of the page in their order, each with the crates whose errors it lists.
const CHAPTERS: [(&str, &[&str]); 17] = [
    (
        "Reaching a server or a depot",
        &["session", "hop", "proto", "resume"],
    ),
    ("Copying files", &["transfer", "filter", "checksum"]),
    ("Copies over ssh", &["remote", "sftp"]),
    ("Copies with object stores and web servers", &["endpoints"]),
    ("Tokens", &["tokens"]),
    ("The command line", &["cli", "quantities", "output"]),
    (
        "Files of settings, policies and principals",
        &["config", "policy", "identity"],
    ),
    ("Depots and off-ramps", &["depot", "offramp", "service"]),
    ("Accounts", &["accounts"]),
    ("Measuring", &["perf", "doctor", "drs", "drs-run"]),
    (
        "Programs on routes",
        &["onramp", "ramp-protocol", "preload", "netns"],
    ),
    ("Jobs and the agent", &["agent"]),
    ("HTTP services", &["api", "api-common"]),
    (
        "The controller, its map and measurements",
        &["control", "map", "measurements"],
    ),
    ("Routes from the controller", &["control-client", "routing"]),
    (
        "Reservations and circuits",
        &[
            "circuits",
            "circuit-trials",
            "control-api",
            "deadline",
            "deadline-driver",
            "domains",
            "provisioning",
        ],
    ),
    ("Labs", &["wanbed"]),
];
/// Files with an enum whose texts are the literals in match arms on its variants.
const MATCHED_TEXTS: [&str; 3] = [
    "crates/proto/src/chain.rs",
    "crates/transfer/src/error.rs",
    "crates/transfer/src/files/failure.rs",
];
/// Minimum words of a text in a match arm or a table of codes. A shorter one is no message.
const MIN_WORDS: usize = 2;

/// A message, and what its variant's doc comment says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorMessage {
    /// Folder of its crate in `crates/`.
    pub crate_name: String,
    /// Type and variant, such as `HopError::NoAddress`.
    pub variant: String,
    /// Text with `...` for placeholders.
    pub template: String,
    /// Doc comment of the variant, as Markdown.
    pub doc: String,
}

/// Returns the messages of all error types in the sources.
#[must_use]
pub fn collect(sources: &[Source]) -> Vec<ErrorMessage> {
    sources.iter().flat_map(in_source).collect()
}

/// Returns the crates with messages that no chapter of the page lists.
#[must_use]
pub fn crates_without_chapter(messages: &[ErrorMessage]) -> BTreeSet<String> {
    let listed: Vec<&str> = CHAPTERS
        .iter()
        .flat_map(|(_, crates)| *crates)
        .copied()
        .collect();
    let crates = messages.iter().map(|message| message.crate_name.clone());
    crates
        .filter(|name| !listed.contains(&name.as_str()))
        .collect()
}

/// Returns the page: the messages of each chapter in alphabetical order. A message that several
/// types print has one entry.
#[must_use]
pub fn page(messages: &[ErrorMessage]) -> String {
    let mut page = String::new();
    for (title, crates) in CHAPTERS {
        let mut entries: BTreeMap<(String, &str), BTreeSet<&str>> = BTreeMap::new();
        for message in messages {
            if crates.contains(&message.crate_name.as_str()) {
                let order = message
                    .template
                    .trim_start_matches(['.', ':', ' ', '"'])
                    .to_lowercase();
                let docs = entries.entry((order, &message.template)).or_default();
                docs.insert(&message.doc);
            }
        }
        if entries.is_empty() {
            continue;
        }
        let _ = write!(page, "## {title}\n\n");
        for ((_, template), docs) in entries {
            let _ = write!(page, "- {}\n\n", code_span(template));
            for doc in docs.into_iter().filter(|doc| !doc.is_empty()) {
                for line in markdown(doc).lines() {
                    let _ = writeln!(page, "{}", format!("  {line}").trim_end());
                }
                page.push('\n');
            }
        }
    }
    page
}

fn code_span(text: &str) -> String {
    match text.contains('`') {
        true => format!("`` {text} ``"),
        false => format!("`{text}`"),
    }
}

/// Converts a doc comment to a page's Markdown: links to items lose their targets, and
/// `docs/PAGE.md` becomes a link to that page.
fn markdown(doc: &str) -> String {
    let mut text = String::new();
    let mut rest = doc;
    while let Some((before, after)) = rest.split_once('[') {
        text.push_str(before);
        let Some((label, after)) = after.split_once(']') else {
            text.push('[');
            rest = after;
            continue;
        };
        rest = after;
        let target = after
            .strip_prefix('(')
            .and_then(|after| after.split_once(')'));
        match target {
            Some((target, after)) => {
                rest = after;
                match target.contains("://") {
                    true => text.push_str(&format!("[{label}]({target})")),
                    false => text.push_str(label),
                }
            }
            None if label.starts_with('`') => text.push_str(label),
            None => text.push_str(&format!("[{label}]")),
        }
    }
    text.push_str(rest);
    linked_pages(&text)
}

/// Makes links of `docs/PAGE.md`, optionally with a heading, on a page of the same folder.
fn linked_pages(text: &str) -> String {
    let mut linked = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("docs/") {
        linked.push_str(before);
        let is_path = |c: char| c.is_ascii_alphanumeric() || ['-', '_', '.', '#'].contains(&c);
        let length = after.find(|c| !is_path(c)).unwrap_or(after.len());
        let (path, after) = after.split_at(length);
        let target = path.trim_end_matches('.');
        match target.split_once(".md") {
            Some((page, _)) => {
                let name = page.replace('-', " ");
                let _ = write!(linked, "[{name}]({target}){}", &path[target.len()..]);
            }
            None => {
                let _ = write!(linked, "docs/{path}");
            }
        }
        rest = after;
    }
    linked.push_str(rest);
    linked
}

/// Returns the messages of one source.
fn in_source(source: &Source) -> Vec<ErrorMessage> {
    let mut types = ErrorTypes::default();
    types.visit_file(&source.file);
    let mut texts = types.texts;
    if MATCHED_TEXTS.iter().any(|path| source.path.ends_with(path)) {
        let mut arms = MatchedTexts::default();
        arms.visit_file(&source.file);
        for (variant, text) in arms.texts {
            if let Some((name, doc)) = types.variants.get(&variant) {
                texts.push((name.clone(), text, doc.clone()));
            }
        }
    }
    let message = |(variant, text, doc): (String, String, String)| ErrorMessage {
        crate_name: source.crate_name.clone(),
        variant,
        template: template::from_format(&text),
        doc,
    };
    let messages = texts.into_iter().map(message);
    // A message such as `{file}: {error}` has no words to search for.
    messages
        .filter(|message| template::words(&message.template) > 0)
        .collect()
}

/// Collector of error types: their texts with type and doc comment, and all variants of enums.
#[derive(Default)]
struct ErrorTypes {
    /// Name, text and doc comment of each variant or struct with a text.
    texts: Vec<(String, String, String)>,
    /// Full name and doc comment of enum variants, by the variant's name.
    variants: BTreeMap<String, (String, String)>,
}

impl<'ast> Visit<'ast> for ErrorTypes {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !sources::is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        if let Some(text) = error_text(&item.attrs) {
            let doc = sources::doc_comment(&item.attrs);
            self.texts.push((item.ident.to_string(), text, doc));
        }
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        for variant in &item.variants {
            let name = format!("{}::{}", item.ident, variant.ident);
            let doc = sources::doc_comment(&variant.attrs);
            if let Some(text) = error_text(&variant.attrs) {
                self.texts.push((name.clone(), text, doc.clone()));
            }
            self.variants.insert(variant.ident.to_string(), (name, doc));
        }
    }

    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        if let Ok(TextTable(rows)) = item.mac.parse_body() {
            for (variant, text, doc) in rows {
                self.texts.push((variant, text, doc));
            }
        }
    }
}

/// Rows of a macro that defines an enum with its numbers and texts:
/// `/// Doc. Variant = 1, "text";`.
struct TextTable(Vec<(String, String, String)>);

impl Parse for TextTable {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let mut rows = Vec::new();
        while !input.is_empty() {
            let attributes = syn::Attribute::parse_outer(input)?;
            let variant: syn::Ident = input.parse()?;
            input.parse::<syn::Token![=]>()?;
            input.parse::<syn::LitInt>()?;
            input.parse::<syn::Token![,]>()?;
            let text: syn::LitStr = input.parse()?;
            input.parse::<syn::Token![;]>()?;
            let doc = sources::doc_comment(&attributes);
            if template::words(&text.value()) >= MIN_WORDS {
                rows.push((variant.to_string(), text.value(), doc));
            }
        }
        Ok(Self(rows))
    }
}

/// Collector of match arms on one variant whose body has a text.
#[derive(Default)]
struct MatchedTexts {
    /// Name of the variant, and its text.
    texts: Vec<(String, String)>,
}

impl<'ast> Visit<'ast> for MatchedTexts {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !sources::is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        let path = match &arm.pat {
            syn::Pat::Path(pattern) => Some(&pattern.path),
            syn::Pat::TupleStruct(pattern) => Some(&pattern.path),
            _ => None,
        };
        let variant = path.and_then(|path| path.segments.last());
        let text = shown_text(&arm.body);
        if let Some((variant, text)) = variant.zip(text)
            && template::words(&template::from_format(&text)) >= MIN_WORDS
        {
            self.texts.push((variant.ident.to_string(), text));
        }
        visit::visit_arm(self, arm);
    }
}

/// Returns the text that an arm's body is, or writes: `"text"`, `{ "text" }`,
/// `f.write_str("text")?` or `write!(f, "text")?`.
fn shown_text(body: &syn::Expr) -> Option<String> {
    match body {
        syn::Expr::Lit(syn::ExprLit {
            lit: syn::Lit::Str(text),
            ..
        }) => Some(text.value()),
        syn::Expr::Try(tried) => shown_text(&tried.expr),
        syn::Expr::MethodCall(call) if call.method == "write_str" => shown_text(call.args.first()?),
        syn::Expr::Macro(call) if call.mac.path.is_ident("write") => {
            sources::literals_in(&call.mac.tokens).into_iter().next()
        }
        syn::Expr::Block(block) => match block.block.stmts.as_slice() {
            [syn::Stmt::Expr(expression, None)] => shown_text(expression),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the text of an `#[error("...")]` attribute.
fn error_text(attributes: &[syn::Attribute]) -> Option<String> {
    let attribute = attributes
        .iter()
        .find(|attribute| attribute.path().is_ident("error"))?;
    let syn::Meta::List(list) = &attribute.meta else {
        return None;
    };
    sources::literals_in(&list.tokens).into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, text: &str) -> Vec<(String, String, String)> {
        let source = Source {
            crate_name: "transfer".to_owned(),
            path: path.into(),
            file: syn::parse_file(text).unwrap(),
        };
        let found = in_source(&source).into_iter();
        found
            .map(|message| (message.variant, message.template, message.doc))
            .collect()
    }

    fn row(variant: &str, template: &str, doc: &str) -> (String, String, String) {
        (variant.to_owned(), template.to_owned(), doc.to_owned())
    }

    #[test]
    fn variants_and_structs_have_message_and_doc_comment() {
        let text = r#"
            enum E {
                /// The name does not exist.
                /// Check it.
                #[error("{host}: no {}", "x")]
                NoName { host: String },
                /// Passed on.
                #[error(transparent)]
                Other(io::Error),
            }
            /// Whole struct.
            #[error("too many")]
            struct S;
            #[cfg(test)]
            mod tests { enum T { #[error("of a test")] A } }
        "#;
        assert_eq!(
            messages("src/lib.rs", text),
            [
                row(
                    "E::NoName",
                    "...: no ...",
                    "The name does not exist.\nCheck it."
                ),
                row("S", "too many", "Whole struct."),
            ]
        );
    }

    #[test]
    fn texts_in_match_arms_belong_to_their_variants() {
        let text = r#"
            enum Kind {
                /// Full disk.
                DiskFull,
                /// Hash differs.
                Hash,
                Io,
            }
            impl Kind {
                fn text(self) -> &str {
                    match self {
                        Self::DiskFull => "no space left",
                        Self::Hash => { "the hash differs" }
                        Self::Io => "io",
                    }
                }
            }
        "#;
        let found = [
            row("Kind::DiskFull", "no space left", "Full disk."),
            row("Kind::Hash", "the hash differs", "Hash differs."),
        ];
        assert_eq!(messages(MATCHED_TEXTS[1], text), found);
        assert_eq!(messages("src/other.rs", text), []);
    }

    #[test]
    fn rows_of_a_table_of_codes_are_messages() {
        let text = r#"codes! {
            /// Success.
            Ok = 0, "ok";
            /// The depot does not list the key.
            Unauthorised = 4, "does not know this key";
        }"#;
        let found = [row(
            "Unauthorised",
            "does not know this key",
            "The depot does not list the key.",
        )];
        assert_eq!(messages("src/lib.rs", text), found);
    }

    #[test]
    fn page_groups_by_chapter_and_joins_equal_messages() {
        let message = |crate_name: &str, template: &str, doc: &str| ErrorMessage {
            crate_name: crate_name.to_owned(),
            variant: String::new(),
            template: template.to_owned(),
            doc: doc.to_owned(),
        };
        let messages = [
            message("transfer", "no space left", "The disk is full."),
            message(
                "transfer",
                "...: at most ...",
                "A limit; see docs/bounds.md#logs.",
            ),
            message("transfer", "no space left", "The quota is full."),
            message("hop", "no address", "See [`Endpoint`]."),
        ];
        assert_eq!(
            page(&messages),
            "## Reaching a server or a depot\n\n- `no address`\n\n  See `Endpoint`.\n\n\
             ## Copying files\n\n- `...: at most ...`\n\n  A limit; see \
             [bounds](bounds.md#logs).\n\n- `no space left`\n\n  The disk is full.\n\n  \
             The quota is full.\n\n"
        );
    }

    #[test]
    fn crates_of_no_chapter_are_found() {
        let message = ErrorMessage {
            crate_name: "new".to_owned(),
            variant: String::new(),
            template: String::new(),
            doc: String::new(),
        };
        let missing: Vec<String> = crates_without_chapter(&[message]).into_iter().collect();
        assert_eq!(missing, ["new"]);
    }

    #[test]
    fn links_of_doc_comments_lead_to_pages() {
        assert_eq!(markdown("[`A`] and [b](crate::c) [1]"), "`A` and b [1]");
        assert_eq!(markdown("[a](https://b.example)"), "[a](https://b.example)");
        assert_eq!(
            markdown("See docs/copy-protocol.md."),
            "See [copy protocol](copy-protocol.md)."
        );
        assert_eq!(markdown("in docs/results/"), "in docs/results/");
    }
}
