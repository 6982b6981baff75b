//! Reports what a command would do.

use longhaul_proto::text::printable;
use longhaul_sync::{Change, NodeKind, Plan, Rename, Step};
use quantities::ByteCount;
use serde_json::json;

use crate::answer;

/// Reports a plan, a line for each step and one for all.
pub fn report(plan: &Plan, as_json: bool) {
    let line: fn(&Step) -> String = if as_json { json_line } else { line };
    let rename_line: fn(&Rename) -> String = match as_json {
        true => json_rename_line,
        false => rename_line,
    };
    let obstacles = plan.obstacles.iter().map(line);
    let renames = plan.renames.iter().map(rename_line);
    let others = plan.copies.iter().chain(&plan.removals).map(line);
    let is_written = answer::write_lines(obstacles.chain(renames).chain(others));
    if is_written {
        answer::write_line(match as_json {
            true => json_summary(plan),
            false => summary(plan),
        });
    }
}

fn line(step: &Step) -> String {
    let end = if step.kind == NodeKind::Directory {
        "/"
    } else {
        ""
    };
    let path = match step.path.is_empty() {
        true => ".".to_owned(),
        false => printable(&step.path),
    };
    let bytes = match step.bytes {
        0 => String::new(),
        bytes => ByteCount(bytes).to_string(),
    };
    let entries = match step.entries {
        1 => String::new(),
        entries => format!(" ({entries} entries)"),
    };
    format!("{:<8} {bytes:>10} {path}{end}{entries}", verb(step.change))
}

fn rename_line(rename: &Rename) -> String {
    let Rename { from, to, bytes } = rename;
    format!(
        "{:<8} {:>10} {} to {}",
        "rename",
        ByteCount(*bytes).to_string(),
        printable(from),
        printable(to)
    )
}

fn verb(change: Change) -> &'static str {
    match change {
        Change::Create => "create",
        Change::Replace => "replace",
        Change::Adjust => "adjust",
        Change::Compare => "compare",
        Change::Refuse => "refuse",
        Change::Remove => "remove",
    }
}

/// Numbers of a plan.
struct PlanCounts {
    steps: [u64; 6],
    copied_bytes: u64,
    removed_bytes: u64,
}

/// Changes in the order of [`PlanCounts::steps`].
const CHANGES: [Change; 6] = [
    Change::Create,
    Change::Replace,
    Change::Adjust,
    Change::Compare,
    Change::Refuse,
    Change::Remove,
];

impl PlanCounts {
    fn new(plan: &Plan) -> Self {
        let steps = || plan.copies.iter().chain(plan.removed());
        let count = |change| {
            let of_change = steps().filter(|step| step.change == change);
            of_change.map(|step| step.entries).sum()
        };
        Self {
            steps: CHANGES.map(count),
            copied_bytes: plan.copies.iter().map(|step| step.bytes).sum(),
            removed_bytes: plan.removed().map(|step| step.bytes).sum(),
        }
    }
}

fn summary(plan: &Plan) -> String {
    let counts = PlanCounts::new(plan);
    let steps = CHANGES.iter().map(|change| verb(*change)).zip(counts.steps);
    let renamed = ("rename", plan.renames.len() as u64);
    let parts = std::iter::once(renamed).chain(steps);
    let parts = parts.filter(|(_, number)| *number > 0);
    let parts: Vec<String> = parts
        .map(|(verb, number)| format!("{verb} {number}"))
        .collect();
    let mut text = match parts.is_empty() {
        true => "would change nothing".to_owned(),
        false => format!("would {}", parts.join(", ")),
    };
    for (bytes, purpose) in [
        (counts.copied_bytes, "send"),
        (counts.removed_bytes, "remove"),
    ] {
        if bytes > 0 {
            text += &format!("; {} to {purpose}", ByteCount(bytes));
        }
    }
    format!(
        "{text}; {} unchanged, {} left alone",
        plan.unchanged, plan.skipped
    )
}

fn json_line(step: &Step) -> String {
    json!({
        "event": "planned", "change": verb(step.change), "path": printable(&step.path),
        "kind": kind(step.kind), "bytes": step.bytes, "entries": step.entries,
    })
    .to_string()
}

fn json_rename_line(rename: &Rename) -> String {
    json!({
        "event": "planned", "change": "rename", "path": printable(&rename.to),
        "from": printable(&rename.from), "kind": "file", "bytes": rename.bytes, "entries": 1,
    })
    .to_string()
}

fn kind(kind: NodeKind) -> &'static str {
    match kind {
        NodeKind::File => "file",
        NodeKind::Directory => "directory",
        NodeKind::Symlink => "symlink",
        NodeKind::Other => "other",
    }
}

fn json_summary(plan: &Plan) -> String {
    let counts = PlanCounts::new(plan);
    let [created, replaced, adjusted, compared, refused, removed] = counts.steps;
    json!({
        "event": "plan", "rename": plan.renames.len(), "create": created, "replace": replaced,
        "adjust": adjusted, "compare": compared, "refuse": refused, "remove": removed,
        "copied_bytes": counts.copied_bytes, "removed_bytes": counts.removed_bytes,
        "unchanged": plan.unchanged, "left_alone": plan.skipped,
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(path: &str, change: Change, bytes: u64, entries: u64) -> Step {
        Step {
            path: path.into(),
            change,
            kind: NodeKind::File,
            bytes,
            entries,
        }
    }

    #[test]
    fn plans_are_lines() {
        let plan = Plan {
            copies: vec![
                step("a\nb", Change::Create, 2048, 1),
                step("c", Change::Replace, 1024, 1),
            ],
            removals: vec![step("old", Change::Remove, 10, 3)],
            renames: vec![Rename {
                from: "a\nb".into(),
                to: "c d".into(),
                bytes: 1024,
            }],
            unchanged: 7,
            ..Plan::default()
        };
        for step in plan.copies.iter().chain(&plan.removals) {
            assert!(!line(step).contains('\n') && !json_line(step).contains('\n'));
        }
        for rename in &plan.renames {
            assert!(!json_rename_line(rename).contains('\n'));
            assert_eq!(rename_line(rename), "rename        1 KiB a\\u{a}b to c d");
        }
        let text = summary(&plan);
        let expected = "would rename 1, create 1, replace 1, remove 3; 3 KiB to send; \
                        10 B to remove; 7 unchanged, 0 left alone";
        assert_eq!(text, expected);
        assert!(summary(&Plan::default()).starts_with("would change nothing"));
        let json: serde_json::Value = serde_json::from_str(&json_summary(&plan)).unwrap();
        assert_eq!(
            (&json["copied_bytes"], &json["remove"]),
            (&json!(3072), &json!(3))
        );
    }
}
