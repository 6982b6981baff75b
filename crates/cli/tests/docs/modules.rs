//! Cycles of modules inside a crate: modules that use each other can only be understood together.
//!
//! An edge leads from a module to each module that it names in a path. A child that uses an item of
//! its parent is no edge: that is how a module is split into files. Tests are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use longhaul_reference::sources::files;
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::pages::root;

/// Path of a module from the root of its crate, which is empty itself.
type Module = Vec<String>;

/// Reads the module that `file` holds, relative to the `src` of its crate.
fn module_of(file: &Path) -> Module {
    let mut module: Module = file
        .with_extension("")
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    if module
        .last()
        .is_some_and(|name| ["lib", "main", "mod"].contains(&name.as_str()))
    {
        module.pop();
    }
    module
}

fn is_test(module: &Module) -> bool {
    module.iter().any(|name| {
        ["test", "tests", "model"].contains(&name.as_str())
            || ["_test", "_tests"].iter().any(|end| name.ends_with(end))
            || name.contains("testing")
            || name.contains("fuzzing")
    })
}

/// Reads the modules of a crate from its folder `src`, without tests.
fn read(src: &Path) -> BTreeMap<Module, TokenStream> {
    let files = files(src).unwrap().into_iter();
    let modules = files.map(|path| (module_of(path.strip_prefix(src).unwrap()), path));
    modules
        .filter(|(module, _)| !is_test(module))
        .map(|(module, path)| {
            let tokens = std::fs::read_to_string(&path).unwrap().parse();
            let tokens = tokens.unwrap_or_else(|why| panic!("{}: {why}", path.display()));
            (module, tokens)
        })
        .collect()
}

/// Collects the paths in `tokens` that begin with `crate`, `self`, `super` or follow `use`.
fn collect_paths(tokens: TokenStream, paths: &mut BTreeSet<Vec<String>>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        if is_test_module(&tokens[at..]) {
            at += 5;
            continue;
        }
        match &tokens[at] {
            TokenTree::Group(group) => collect_paths(group.stream(), paths),
            TokenTree::Ident(word) if *word == "use" && !is_capture_list(&tokens[at + 1..]) => {
                let end = tokens[at..]
                    .iter()
                    .position(|token| matches!(token, TokenTree::Punct(p) if p.as_char() == ';'))
                    .map_or(tokens.len(), |len| at + len);
                expand(&tokens[at + 1..end], &[], paths);
                at = end;
            }
            TokenTree::Ident(word) if ["crate", "self", "super"].iter().any(|w| word == w) => {
                let end = path_end(&tokens, at);
                expand(&tokens[at..end], &[], paths);
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
}

/// Returns true at `#[cfg(test)] mod NAME { ... }`.
fn is_test_module(tokens: &[TokenTree]) -> bool {
    let [
        TokenTree::Punct(_),
        TokenTree::Group(attribute),
        TokenTree::Ident(word),
        TokenTree::Ident(_),
        TokenTree::Group(body),
        ..,
    ] = tokens
    else {
        return false;
    };
    attribute.to_string().replace(' ', "") == "[cfg(test)]"
        && *word == "mod"
        && body.delimiter() == Delimiter::Brace
}

/// Returns true at the list of `impl Trait + use<...>`, given the tokens after `use`.
fn is_capture_list(tokens: &[TokenTree]) -> bool {
    matches!(tokens, [TokenTree::Punct(p), ..] if p.as_char() == '<')
}

/// Returns the end of the path that begins at `start`: names between `::`.
fn path_end(tokens: &[TokenTree], start: usize) -> usize {
    let mut end = start + 1;
    let is_colon =
        |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == ':');
    while is_colon(end)
        && is_colon(end + 1)
        && matches!(tokens.get(end + 2), Some(TokenTree::Ident(_)))
    {
        end += 3;
    }
    end
}

/// Adds each path of a use tree.
fn expand(tree: &[TokenTree], before: &[String], paths: &mut BTreeSet<Vec<String>>) {
    let mut path = before.to_vec();
    let mut is_alias = false;
    for token in tree {
        match token {
            TokenTree::Ident(word) if *word == "as" => is_alias = true,
            TokenTree::Ident(_) if is_alias => is_alias = false,
            TokenTree::Ident(word) => path.push(word.to_string()),
            TokenTree::Group(group) => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                for branch in
                    inner.split(|t| matches!(t, TokenTree::Punct(p) if p.as_char() == ','))
                {
                    expand(branch, &path, paths);
                }
                return;
            }
            _ => {}
        }
    }
    paths.insert(path);
}

/// Returns the module of the crate that `path` leads to from `module`, if it is one of `all`.
fn resolve(
    path: &[String],
    module: &Module,
    all: &BTreeMap<Module, TokenStream>,
) -> Option<Module> {
    let (mut reached, mut rest) = match path.first()?.as_str() {
        "crate" => (Module::new(), &path[1..]),
        "self" => (module.clone(), &path[1..]),
        "super" => (module.clone(), path),
        _ => (module.clone(), path),
    };
    while rest.first().is_some_and(|word| word == "super") {
        reached.pop()?;
        rest = &rest[1..];
    }
    for name in rest {
        reached.push(name.clone());
        if !all.contains_key(&reached) {
            reached.pop();
            break;
        }
    }
    (reached != *module && all.contains_key(&reached)).then_some(reached)
}

/// Returns the groups of modules that use each other.
fn cycles(sources: &BTreeMap<Module, TokenStream>) -> Vec<BTreeSet<Module>> {
    let mut uses: BTreeMap<&Module, BTreeSet<Module>> = BTreeMap::new();
    for (module, tokens) in sources {
        let mut paths = BTreeSet::new();
        collect_paths(tokens.clone(), &mut paths);
        let used = paths
            .iter()
            .filter_map(|path| resolve(path, module, sources));
        uses.insert(
            module,
            used.filter(|used| !module.starts_with(used)).collect(),
        );
    }
    let reachable: BTreeMap<&Module, BTreeSet<&Module>> = uses
        .keys()
        .map(|start| {
            let mut seen = BTreeSet::new();
            let mut next = vec![*start];
            while let Some(module) = next.pop() {
                next.extend(uses[module].iter().filter(|used| seen.insert(*used)));
            }
            (*start, seen)
        })
        .collect();
    let mut found = BTreeSet::new();
    for (module, seen) in &reachable {
        if seen.contains(*module) {
            let mutual = seen
                .iter()
                .filter(|other| reachable[**other].contains(*module));
            found.insert(mutual.map(|other| (*other).clone()).collect());
        }
    }
    found.into_iter().collect()
}

#[test]
fn modules_do_not_use_each_other() {
    let mut faults = Vec::new();
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        let folder = entry.unwrap().path();
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        for cycle in cycles(&read(&folder.join("src"))) {
            let modules: Vec<String> = cycle.iter().map(|module| module.join("::")).collect();
            faults.push(format!("crates/{name}: {}", modules.join(", ")));
        }
    }
    assert!(
        faults.is_empty(),
        "modules that use each other:\n{}",
        faults.join("\n")
    );
}

#[test]
fn a_cycle_is_found_through_use_trees_and_paths() {
    let source = |module: &str, text: &str| {
        let module: Module = module.split("::").map(str::to_owned).collect();
        (module, text.parse().unwrap())
    };
    let sources = BTreeMap::from([
        source("a", "use crate::{b::{Item, c::Other}, d};"),
        source("b", "fn f() { crate::e::run() } mod c;"),
        source(
            "b::c",
            "use super::Item; #[cfg(test)] mod tests { use crate::a; }",
        ),
        source("d", "// crate::a\n const TEXT: &str = \"crate::a\";"),
        source("e", "use super::a as other;"),
    ]);
    let found = cycles(&sources);
    let names: Vec<String> = found[0].iter().map(|module| module.join("::")).collect();
    assert_eq!((found.len(), names.join(" ")), (1, "a b e".to_owned()));
}
