//! The documentation. Every command line of README.md, CONTRIBUTING.md and docs/*.md is run in a
//! lab, or says why not and is checked against the programs' own arguments. Layers are those of
//! the manifests. Links resolve. Modules do not use each other in a cycle.

#![allow(clippy::unwrap_used, clippy::panic)] // A test that can't go on has failed.

mod attacks;
mod bounds;
#[path = "../common/mod.rs"]
mod common;
mod layers;
mod lines;
mod links;
mod modules;
mod page;
mod pages;
mod place;
mod programs;
mod refusals;
mod shape;
mod shell;

use page::Kind;
use pages::Doc;

#[test]
fn every_command_line_is_accepted_by_its_program() {
    let faults: Vec<String> = pages::all().iter().flat_map(programs::faults).collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn every_transcript_runs_as_it_is_written() {
    let mut faults = Vec::new();
    for doc in pages::all().iter().filter(|doc| is_run(doc)) {
        let Some(mut place) = place::Place::up() else {
            return;
        };
        let mut reported: Vec<String> = doc
            .page
            .parts
            .iter()
            .flat_map(|part| place.carry_out(part))
            .collect();
        reported.extend(place.end());
        faults.extend(
            reported
                .into_iter()
                .map(|why| format!("{}: {why}", doc.name)),
        );
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n\n"));
}

fn is_run(doc: &Doc) -> bool {
    let mut parts = doc.page.parts.iter();
    ![programs::READ_ONLY, programs::OVER_SSH].contains(&doc.name.as_str())
        && parts.any(|part| matches!(part.kind, Kind::Transcript(..)) && part.not_run.is_none())
}
