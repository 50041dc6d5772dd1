//! Holds the arrows between the rooms: a room uses the rooms below it and none above, and a few
//! crates are used in one file each. The sources are parsed, so inline paths and macros count too.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// The rooms as the table in `src/lib.rs` lists them, from top to bottom.
fn rooms() -> Vec<String> {
    let map = std::fs::read_to_string(source().join("lib.rs")).unwrap();
    map.lines()
        .filter_map(|line| line.strip_prefix("//! | [`")?.split_once("`]"))
        .map(|(room, _)| room.to_owned())
        .collect()
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Every Rust file below `src`, with its path from there.
fn files() -> Vec<(String, syn::File)> {
    let mut found = Vec::new();
    let mut directories = vec![source()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let parsed = syn::parse_file(&std::fs::read_to_string(&path).unwrap()).unwrap();
                let name = path.strip_prefix(source()).unwrap().to_string_lossy().into_owned();
                found.push((name, parsed));
            }
        }
    }
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    found
}

/// The module path of a file: `cli/check/hub.rs` is `[cli, check, hub]`.
fn module_of(file: &str) -> Vec<String> {
    let path = file.trim_end_matches(".rs");
    let mut module: Vec<String> = path.split('/').map(str::to_owned).collect();
    if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        module.pop();
    }
    module
}

/// Collects every path of a file, absolute from the crate's root or from a crate's name.
struct Paths {
    module: Vec<String>,
    found: BTreeSet<Vec<String>>,
}

impl Paths {
    fn of(file: &str, parsed: &syn::File) -> BTreeSet<Vec<String>> {
        let mut paths = Self {
            module: module_of(file),
            found: BTreeSet::new(),
        };
        paths.visit_file(parsed);
        paths.found
    }

    fn add(&mut self, segments: &[String]) {
        let Some(first) = segments.first() else { return };
        let absolute = match first.as_str() {
            "crate" => segments.to_vec(),
            "self" => self.below_module(0, &segments[1..]),
            "super" => {
                let up = segments.iter().take_while(|segment| *segment == "super").count();
                self.below_module(up, &segments[up..])
            }
            _ => segments.to_vec(),
        };
        self.found.insert(absolute);
    }

    fn below_module(&self, up: usize, rest: &[String]) -> Vec<String> {
        let kept = self.module.len().saturating_sub(up);
        let mut path = vec!["crate".to_owned()];
        path.extend_from_slice(&self.module[..kept]);
        path.extend_from_slice(rest);
        path
    }

    fn add_use(&mut self, prefix: &[String], tree: &syn::UseTree) {
        let with = |name: &syn::Ident| [prefix, &[name.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.add_use(&with(&path.ident), &path.tree),
            syn::UseTree::Name(syn::UseName { ident }) | syn::UseTree::Rename(syn::UseRename { ident, .. }) => {
                let mut path = with(ident);
                if path.len() == 1 {
                    path.push("self".to_owned());
                }
                self.add(&path);
            }
            syn::UseTree::Glob(_) => self.add(prefix),
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| self.add_use(prefix, item)),
        }
    }

    /// Paths in what a macro is given: runs of identifiers with `::` between them.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut run: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.add(&std::mem::take(&mut run));
                    }
                    run.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    self.add(&std::mem::take(&mut run));
                    self.add_tokens(group.stream());
                    colons = 0;
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {
                    self.add(&std::mem::take(&mut run));
                    colons = 0;
                }
            }
        }
        self.add(&run);
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add_use(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.add(&segments);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, macro_call: &'ast syn::Macro) {
        self.add_tokens(macro_call.tokens.clone());
        visit::visit_macro(self, macro_call);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }
}

/// Every use of a room by a file that must not use it, as a sentence.
fn broken_arrows(rooms: &[String], file: &str, parsed: &syn::File) -> Vec<String> {
    let position = |room: &str| rooms.iter().position(|known| known == room);
    let module = module_of(file);
    let Some(here) = module.first().and_then(|room| position(room)) else {
        return Vec::new();
    };
    let used: BTreeSet<usize> = Paths::of(file, parsed)
        .iter()
        .filter(|path| path[0] == "crate")
        .filter_map(|path| position(path.get(1)?))
        .collect();
    let above = used.into_iter().filter(|&used| used < here);
    above
        .map(|used| format!("{file} uses {}, which is above {}", rooms[used], rooms[here]))
        .collect()
}

/// The files that use a crate.
fn users_of(name: &str) -> Vec<String> {
    files()
        .iter()
        // One segment alone is a local name, unless it was imported.
        .filter(|(file, parsed)| {
            Paths::of(file, parsed)
                .iter()
                .any(|path| path.len() > 1 && path[0] == name)
        })
        .map(|(file, _)| file.clone())
        .collect()
}

#[test]
fn a_room_uses_only_the_rooms_below_it() {
    let rooms = rooms();
    let broken: Vec<String> = files()
        .iter()
        .flat_map(|(file, parsed)| broken_arrows(&rooms, file, parsed))
        .collect();
    assert_eq!(broken, Vec::<String>::new());
}

#[test]
fn every_room_stands_in_the_map_and_the_map_has_no_other() {
    let on_disk: BTreeSet<String> = files()
        .iter()
        .filter_map(|(file, _)| module_of(file).first().cloned())
        .collect();
    assert_eq!(rooms().into_iter().collect::<BTreeSet<_>>(), on_disk);
}

#[test]
fn an_unmaintained_crate_is_used_in_one_file_only() {
    assert_eq!(users_of("serde_yaml"), ["support/yaml.rs"]);
    assert_eq!(users_of("backoff"), ["support/retry.rs"]);
}

#[test]
fn the_binary_knows_only_the_command_line() {
    let main = syn::parse_file(&std::fs::read_to_string(source().join("main.rs")).unwrap()).unwrap();
    let used: Vec<Vec<String>> = Paths::of("main.rs", &main)
        .into_iter()
        .filter(|path| path[0] == "esfleet")
        .map(|path| path[..2].to_vec())
        .collect();
    assert_eq!(used, [["esfleet", "cli"]]);
}

#[test]
fn what_decides_has_no_client_clock_or_environment() {
    let impure = [
        "tokio",
        "tracing",
        "futures",
        "kube::Client",
        "kube::Api",
        "kube::client",
        "kube::runtime",
        "std::env",
        "std::fs",
        "std::net",
        "std::process",
        "std::thread",
        "std::time::Instant",
        "std::time::SystemTime",
        "zookeeper_client",
    ];
    let mut found = Vec::new();
    for (file, parsed) in files().iter().filter(|(file, _)| file.starts_with("app/")) {
        for path in Paths::of(file, parsed) {
            let text = path.join("::");
            let hit = impure
                .iter()
                .any(|&bad| text == bad || text.starts_with(&format!("{bad}::")));
            if hit || text.ends_with("Timestamp::now") {
                found.push(format!("{file} uses {text}"));
            }
        }
    }
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn an_arrow_upwards_is_found_in_every_way_of_writing_it() {
    let rooms = ["cli", "listing", "api"].map(str::to_owned);
    let broken = |text: &str| broken_arrows(&rooms, "api/names.rs", &syn::parse_str(text).unwrap()).len();
    for up in [
        "use crate::cli::main;",
        "use crate::{listing::text, support};",
        "use super::super::cli as face;",
        "fn f() { crate::cli::main(); }",
        "fn f(x: &crate::listing::Ready) {}",
        "fn f() { println!(\"{:?}\", crate::listing::Ready::True); }",
        "mod inner { use super::super::super::cli; }",
        "pub use crate::listing::*;",
    ] {
        assert_eq!(broken(up), 1, "{up}");
    }
    for fine in [
        "use crate::api::x;",
        "use super::cli;",
        "use std::cli;",
        "fn cli() { self::cli() }",
    ] {
        assert_eq!(broken(fine), 0, "{fine}");
    }
}
