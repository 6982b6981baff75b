//! Parses the command lines of a Markdown page, with their positions and the output that the page
//! shows. Pure.
//!
//! - A fence of ```` ```console ```` holds a transcript. Lines with a prompt (`laptop$`, or `$`,
//!   which is the laptop) are commands, the lines after one are its output. A line that ends in a
//!   backslash continues in the next one.
//! - A fence of ```` ```sh ```` holds commands alone, one per line.
//! - A fence after `<!-- file: MACHINE PATH -->` holds a file.
//!
//! `<!-- not run: REASON -->` and `<!-- exit status N -->` are in the lines before the fence that
//! they describe.

/// The parts of a page that concern the tests.
#[derive(Debug, Default, PartialEq)]
pub struct Page {
    /// Fences and blocks in the order of the page.
    pub parts: Vec<Part>,
    /// Code between backticks in the text, with its line.
    pub spans: Vec<(usize, String)>,
}

/// A fence, or an indented block that holds commands.
#[derive(Debug, PartialEq)]
pub struct Part {
    /// Line of the page that it begins in, from 1.
    pub line: usize,
    /// Kind of content.
    pub kind: Kind,
    /// Reason why it is not run.
    pub not_run: Option<String>,
}

/// Content of a fence or block.
#[derive(Debug, PartialEq)]
pub enum Kind {
    /// Commands and their output, and the exit status of the last.
    Transcript(Vec<Step>, i32),
    /// Commands alone.
    Commands(Vec<Step>),
    /// A file on a machine.
    File {
        /// Machine that the file is on.
        machine: String,
        /// Path, as a user of that machine would write it.
        path: String,
        /// Content of the file.
        content: String,
    },
    /// An indented block that looks like commands.
    Indented(Vec<Step>),
}

/// One command line.
#[derive(Debug, PartialEq)]
pub struct Step {
    /// Line of the page.
    pub line: usize,
    /// Machine that it is typed on.
    pub machine: String,
    /// The command.
    pub command: String,
    /// Output that the page shows.
    pub output: Vec<String>,
}

/// Machine for a command without a machine's name.
const DEFAULT_MACHINE: &str = "laptop";

/// Comments about the next fence.
#[derive(Default)]
struct Marks {
    not_run: Option<String>,
    exit: i32,
    file: Option<(String, String)>,
}

/// Parses a page. `programs` are the words that identify an indented block of commands.
pub fn read(text: &str, programs: &[&str]) -> Result<Page, String> {
    let mut page = Page::default();
    let mut marks = Marks::default();
    let mut lines = text
        .lines()
        .enumerate()
        .map(|(at, line)| (at + 1, line))
        .peekable();
    let mut prose = String::new();
    let mut blank_before = true;
    while let Some((at, line)) = lines.next() {
        if let Some(word) = line.strip_prefix("```") {
            take_spans(&mut page, &mut prose, at);
            let mut inside = Vec::new();
            loop {
                match lines.next() {
                    None => return Err(format!("line {at}: the fence does not end")),
                    Some((_, "```")) => break,
                    Some(inner) => inside.push(inner),
                }
            }
            if let Some(kind) =
                fence(word, &inside, &mut marks).map_err(|why| format!("line {at}: {why}"))?
            {
                let not_run = marks.not_run.take();
                page.parts.push(Part {
                    line: at,
                    kind,
                    not_run,
                });
            }
            marks = Marks::default();
        } else if let Some(comment) = line
            .strip_prefix("<!-- ")
            .and_then(|rest| rest.strip_suffix(" -->"))
        {
            mark(&mut marks, comment).map_err(|why| format!("line {at}: {why}"))?;
        } else if blank_before && line.starts_with("    ") {
            let mut inside = vec![(at, line)];
            while let Some(more) =
                lines.next_if(|(_, next)| next.starts_with("    ") || next.is_empty())
            {
                inside.push(more);
            }
            if let Some(steps) = indented(&inside, programs) {
                let not_run = marks.not_run.take();
                page.parts.push(Part {
                    line: at,
                    kind: Kind::Indented(steps),
                    not_run,
                });
            }
        } else {
            if line.is_empty() {
                take_spans(&mut page, &mut prose, at);
            } else {
                marks = Marks::default();
                prose.push_str(line);
                prose.push(' ');
            }
            blank_before = line.is_empty();
        }
    }
    take_spans(&mut page, &mut prose, text.lines().count());
    Ok(page)
}

fn mark(marks: &mut Marks, comment: &str) -> Result<(), String> {
    if let Some(reason) = comment.strip_prefix("not run: ") {
        marks.not_run = Some(reason.to_owned());
    } else if let Some(number) = comment.strip_prefix("exit status ") {
        marks.exit = number
            .parse()
            .map_err(|_| format!("{number:?} is no exit status"))?;
    } else if let Some(file) = comment.strip_prefix("file: ") {
        let (machine, path) = file
            .split_once(' ')
            .ok_or("write <!-- file: MACHINE PATH -->")?;
        marks.file = Some((machine.to_owned(), path.to_owned()));
    }
    Ok(())
}

fn fence(word: &str, lines: &[(usize, &str)], marks: &mut Marks) -> Result<Option<Kind>, String> {
    if let Some((machine, path)) = marks.file.take() {
        let content = lines.iter().map(|(_, line)| format!("{line}\n")).collect();
        return Ok(Some(Kind::File {
            machine,
            path,
            content,
        }));
    }
    Ok(match word {
        "" => return Err("say what the fence holds: console, sh, text, toml".to_owned()),
        "console" => Some(Kind::Transcript(transcript(lines)?, marks.exit)),
        "sh" => Some(Kind::Commands(commands(
            lines.iter().map(|&(at, line)| (at, line)),
        ))),
        _ => None,
    })
}

fn transcript(lines: &[(usize, &str)]) -> Result<Vec<Step>, String> {
    let mut steps: Vec<Step> = Vec::new();
    let mut goes_on = false;
    for &(line, text) in lines {
        if goes_on {
            goes_on = continued(&mut steps, text);
        } else if let Some((machine, command)) = prompt(text) {
            steps.push(Step {
                line,
                machine: machine.to_owned(),
                command: String::new(),
                output: vec![],
            });
            goes_on = continued(&mut steps, command);
        } else {
            let step = steps
                .last_mut()
                .ok_or("a transcript begins with a prompt, such as `$ `")?;
            step.output.push(text.to_owned());
        }
    }
    Ok(steps)
}

/// Adds a line to the last command. Returns true if more lines follow.
fn continued(steps: &mut [Step], text: &str) -> bool {
    let (text, more) = match text.strip_suffix('\\') {
        Some(text) => (text, true),
        None => (text, false),
    };
    if let Some(step) = steps.last_mut() {
        step.command.push_str(text.trim_start());
    }
    more
}

/// Returns the machine and the command of a line with a prompt.
fn prompt(line: &str) -> Option<(&str, &str)> {
    let (machine, command) = line.split_once("$ ")?;
    let named = machine.chars().all(|c| c.is_ascii_lowercase());
    named.then_some(match machine {
        "" => (DEFAULT_MACHINE, command),
        machine => (machine, command),
    })
}

/// Returns commands one per line, joined where quotes are open or a backslash ends a line.
fn commands<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut open: Option<Step> = None;
    for (line, text) in lines {
        let text = text.strip_prefix("$ ").unwrap_or(text);
        let mut step = open.take().unwrap_or_else(|| Step {
            line,
            machine: DEFAULT_MACHINE.to_owned(),
            command: String::new(),
            output: vec![],
        });
        match text.strip_suffix('\\') {
            Some(part) => {
                step.command.push_str(part);
                open = Some(step);
            }
            None => {
                step.command.push_str(text);
                if step.command.matches('\'').count() % 2 == 1 {
                    step.command.push('\n');
                    open = Some(step);
                } else if !step.command.trim().is_empty() && !step.command.starts_with('#') {
                    steps.push(step);
                }
            }
        }
    }
    steps.extend(open);
    steps
}

fn indented(lines: &[(usize, &str)], programs: &[&str]) -> Option<Vec<Step>> {
    let first = lines.first()?.1.trim_start();
    let first = first.strip_prefix("$ ").unwrap_or(first);
    let word = first.split_whitespace().next()?;
    programs.contains(&word).then(|| {
        let shifted = lines
            .iter()
            .map(|&(at, line)| (at, line.strip_prefix("    ").unwrap_or(line)));
        commands(shifted)
    })
}

/// Takes the code spans of a paragraph that ends before line `at`.
fn take_spans(page: &mut Page, prose: &mut String, at: usize) {
    let paragraph = std::mem::take(prose);
    let spans = paragraph.split('`').skip(1).step_by(2);
    page.spans.extend(spans.map(|span| (at, span.to_owned())));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(line: usize, machine: &str, command: &str, output: &[&str]) -> Step {
        Step {
            line,
            machine: machine.to_owned(),
            command: command.to_owned(),
            output: output.iter().map(|line| (*line).to_owned()).collect(),
        }
    }

    #[test]
    fn transcripts_tell_machines_commands_and_output_apart() {
        let text =
            "Say `longhaul cp` to\nit.\n\n```console\n$ one \\\n    two\nsaid\nstore$ three\n```\n";
        let page = read(text, &[]).unwrap();
        let steps = vec![
            step(5, "laptop", "one two", &["said"]),
            step(8, "store", "three", &[]),
        ];
        assert_eq!(
            page.parts,
            [Part {
                line: 4,
                kind: Kind::Transcript(steps, 0),
                not_run: None
            }]
        );
        assert_eq!(page.spans, [(3, "longhaul cp".to_owned())]);
    }

    #[test]
    fn comments_are_about_the_next_fence_only() {
        let text = "<!-- not run: installs -->\n```sh\nmake\n# why\nlist 'a\nb'\n```\n\n\
            <!-- exit status 4 -->\n\n```console\n$ x\n```\n\n```console\n$ y\n```\n";
        let parts = read(text, &[]).unwrap().parts;
        assert_eq!(parts[0].not_run.as_deref(), Some("installs"));
        let steps = vec![
            step(3, "laptop", "make", &[]),
            step(5, "laptop", "list 'a\nb'", &[]),
        ];
        assert_eq!(parts[0].kind, Kind::Commands(steps));
        assert_eq!(
            parts[1].kind,
            Kind::Transcript(vec![step(12, "laptop", "x", &[])], 4)
        );
        assert_eq!(
            parts[2].kind,
            Kind::Transcript(vec![step(16, "laptop", "y", &[])], 0)
        );
        assert_eq!(parts[2].not_run, None);
    }

    #[test]
    fn files_and_indented_commands_are_found() {
        let text = "<!-- file: depot policy.toml -->\n```toml\na = 1\n```\n\n    make demo\n\n\
            text\n\n    no command\n";
        let parts = read(text, &["make"]).unwrap().parts;
        let file = Kind::File {
            machine: "depot".to_owned(),
            path: "policy.toml".to_owned(),
            content: "a = 1\n".to_owned(),
        };
        assert_eq!(parts[0].kind, file);
        assert_eq!(
            parts[1].kind,
            Kind::Indented(vec![step(6, "laptop", "make demo", &[])])
        );
        assert_eq!(parts.len(), 2);
    }

    #[test]
    fn invalid_pages_are_reported_with_the_line() {
        for (text, why) in [
            ("a\n\n```sh\nx\n", "line 3: the fence does not end"),
            ("```\nx\n```\n", "line 1: say what the fence holds"),
            (
                "```console\nx\n```\n",
                "line 1: a transcript begins with a prompt",
            ),
            (
                "<!-- exit status x -->\n",
                "line 1: \"x\" is no exit status",
            ),
        ] {
            let error = read(text, &[]).unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
    }
}
