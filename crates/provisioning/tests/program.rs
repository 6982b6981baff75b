//! A driver that is a program of the operator, here a shell script.

#![allow(clippy::unwrap_used, clippy::panic)] // a test that fails may panic, in its helpers too

use std::path::PathBuf;
use std::time::{Duration, Instant};

use longhaul_circuits::time::Window;
use longhaul_provisioning::ask::{Counters, DriverError};
use longhaul_provisioning::circuit::{CircuitPart, EntityName, PartId};
use longhaul_provisioning::driver::{counters, list, set_up, tear_down};
use longhaul_provisioning::program::ProgramDriver;
use longhaul_provisioning::remote::RemoteDriver;
use longhaul_provisioning::streams::StreamSelector;

/// Time limit that even a very slow machine meets.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(60);

/// Script that keeps one part in a file.
const KEEPER: &str = r#"
read -r request
case $request in
*'"do":"set_up"'*)
    id=${request#*'"id":"'}
    printf %s "${id%%'"'*}" >"$1/part"
    echo '{"answer":"done"}' ;;
*'"do":"tear_down"'*)
    rm -f "$1/part"
    echo '{"answer":"done"}' ;;
*'"do":"list"'*)
    if [ -f "$1/part" ]; then
        printf '{"answer":"parts","parts":[{"owner":"us","id":"%s","whole":true}]}\n' "$(cat "$1/part")"
    else
        echo '{"answer":"parts","parts":[]}'
    fi ;;
*'"do":"counters"'*)
    if [ -f "$1/part" ]; then
        echo '{"answer":"counters","bytes":1500,"packets":1,"drops":0}'
    else
        echo '{"answer":"error","kind":"missing","why":"not here"}'
    fi ;;
esac
"#;

fn name(text: &str) -> EntityName {
    text.parse().unwrap()
}

fn part() -> CircuitPart {
    let streams = StreamSelector::between([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    CircuitPart {
        owner: name("us"),
        id: PartId::for_streams(&name("c"), &name("a"), &name("ab"), &streams),
        circuit: name("c"),
        node: name("a"),
        link: name("ab"),
        rate: 1_000_000,
        window: Window::new(0, 1_000),
        streams,
    }
}

/// A program that consists of these commands.
struct Script(tempfile::TempDir);

impl Script {
    fn from_commands(commands: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("driver.sh"), commands).unwrap();
        Self(folder)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("driver.sh")
    }

    /// Arguments of the shell, so that no file is executed while another process may still have it
    /// open.
    fn arguments(&self) -> Vec<String> {
        let paths = [self.path(), self.0.path().to_owned()];
        paths.map(|path| path.to_str().unwrap().to_owned()).into()
    }

    fn driver(&self, time: Duration) -> ProgramDriver {
        ProgramDriver::new("/bin/sh", self.arguments(), time)
    }
}

#[tokio::test]
async fn a_program_sets_up_lists_counts_and_tears_down() {
    let script = Script::from_commands(KEEPER);
    let driver = script.driver(PROGRAM_TIMEOUT);
    let part = part();
    assert_eq!(list(&driver, name("us")).await, Ok(vec![]));
    set_up(&driver, part.clone()).await.unwrap();
    let there = list(&driver, name("us")).await.unwrap();
    assert_eq!(there[0].id, part.id);
    assert!(there[0].whole && there[0].part.is_none());
    let counted = Counters {
        bytes: 1_500,
        packets: 1,
        drops: 0,
    };
    assert_eq!(
        counters(&driver, name("us"), part.id.clone()).await,
        Ok(counted)
    );
    tear_down(&driver, name("us"), part.id.clone())
        .await
        .unwrap();
    let gone = counters(&driver, name("us"), part.id).await;
    let missing = DriverError::Missing {
        why: "not here".to_owned(),
    };
    assert_eq!(gone, Err(missing));
}

#[tokio::test]
async fn faults_of_a_program_are_reported_in_one_line() {
    for (commands, kind, why) in [
        ("exit 3", "failed", "it gave no answer (exit status: 3)"),
        (
            "echo 'the switch is off' >&2; exit 1",
            "failed",
            "the switch is off",
        ),
        (
            "echo '{\"answer\":\"done\"}'; echo 'not really' >&2; exit 1",
            "failed",
            "not really",
        ),
        ("echo yes", "not understood", "the answer is not understood"),
        (
            "echo '{\"answer\":\"done\"} {\"answer\":\"done\"}'",
            "not understood",
            "trailing",
        ),
        (
            "echo '{\"answer\":\"counters\",\"bytes\":1,\"packets\":1,\"drops\":0}'",
            "not understood",
            "does not answer the request",
        ),
        (
            "printf \
            '{\"answer\":\"error\",\"kind\":\"refused\",\"why\":\"\\\\u001b[31m\\\\nno\"}'; exit 1",
            "refused",
            "[31m no",
        ),
        ("yes", "not understood", "more than 8388608 bytes"),
        ("yes >&2", "failed", "longer than 0.5 s"),
        ("kill -9 $$", "failed", "signal: 9"),
    ] {
        let time = if commands == "yes >&2" {
            Duration::from_millis(500)
        } else {
            PROGRAM_TIMEOUT
        };
        let error = set_up(&Script::from_commands(commands).driver(time), part())
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with(kind) && error.contains(why),
            "{commands}: {error}"
        );
        assert!(!error.contains(['\n', '\u{1b}']), "{error:?}");
    }
    let nobody = ProgramDriver::new("/no/such/program", vec![], PROGRAM_TIMEOUT);
    let error = set_up(&nobody, part()).await.unwrap_err().to_string();
    assert!(
        error.contains("/no/such/program") && error.contains("cannot be started"),
        "{error}"
    );
}

#[tokio::test]
async fn a_slow_program_is_killed_with_its_children() {
    let script = Script::from_commands("sleep 1000 & echo $! >\"$1/child\"; wait");
    let error = set_up(&script.driver(Duration::from_secs(10)), part())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("longer than 10 s"), "{error}");
    let child = std::fs::read_to_string(script.0.path().join("child")).unwrap();
    let stat = format!("/proc/{}/stat", child.trim());
    let deadline = Instant::now() + PROGRAM_TIMEOUT;
    // It may remain as a zombie until its new parent reaps it.
    while std::fs::read_to_string(&stat).is_ok_and(|line| !line.contains(") Z")) {
        assert!(Instant::now() < deadline, "it still runs");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_agent_is_reached_through_a_commands_input_and_output() {
    let script = Script::from_commands(
        "while read -r line; do echo '{\"answer\":\"parts\",\"parts\":[]}'; echo >>\"$1/asked\"; \
        done",
    );
    let remote = RemoteDriver::command("/bin/sh", script.arguments(), PROGRAM_TIMEOUT);
    for _ in 0..3 {
        assert_eq!(list(&remote, name("us")).await, Ok(vec![]));
    }
    let ended = RemoteDriver::command("/bin/true", vec![], PROGRAM_TIMEOUT);
    let error = list(&ended, name("us")).await.unwrap_err();
    assert!(matches!(error, DriverError::Failed { .. }), "{error}");
}
