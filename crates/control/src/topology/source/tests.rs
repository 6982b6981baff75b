//! Reading from sockets and programs that answer well, badly, slowly or not at all.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

use super::*;

/// Long enough for any working machine.
const LONG: Duration = Duration::from_secs(60);

/// Serves one connection, with one answer for each request.
fn daemon(path: &Path, answers: Vec<Vec<u8>>) {
    let listener = UnixListener::bind(path).unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        for answer in answers {
            let mut request = vec![0; SHOW_DATABASE.len() + 1];
            stream.read_exact(&mut request).await.unwrap();
            assert_eq!(request.split_last().unwrap().1, SHOW_DATABASE.as_bytes());
            // In two writes, so that the end may arrive later.
            let (first, second) = answer.split_at(answer.len().saturating_sub(2));
            stream.write_all(first).await.unwrap();
            tokio::task::yield_now().await;
            stream.write_all(second).await.unwrap();
        }
    });
}

fn answer(text: &str, status: u8) -> Vec<u8> {
    [text.as_bytes(), &[0, 0, 0, status]].concat()
}

#[tokio::test]
async fn socket_answers_over_one_connection_until_it_ends() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ospfd.vty");
    let mut source = TopologySource::socket(path.clone(), LONG);
    let absent = source.read().await.unwrap_err();
    assert!(matches!(absent, SourceFault::Connect { .. }) && absent.is_restart());
    daemon(
        &path,
        vec![answer("{}", 0), answer("", 0), answer("more", 0)],
    );
    assert_eq!(source.read().await.unwrap(), "{}");
    assert_eq!(source.read().await.unwrap(), "");
    assert_eq!(source.read().await.unwrap(), "more");
    let ended = source.read().await.unwrap_err();
    assert!(matches!(ended, SourceFault::Lost { .. }) && ended.is_restart());
}

#[tokio::test]
async fn refusal_names_the_answer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ospfd.vty");
    daemon(&path, vec![answer("% Unknown\u{1b} command\n", 2)]);
    let refused = TopologySource::socket(path, LONG).read().await.unwrap_err();
    let text = refused.to_string();
    assert!(
        text.contains("status 2: % Unknown\\u{1b} command;"),
        "{text}"
    );
}

#[tokio::test]
async fn silent_socket_is_late() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ospfd.vty");
    let _listener = UnixListener::bind(&path).unwrap();
    let mut source = TopologySource::socket(path, Duration::from_millis(1));
    let late = source.read().await.unwrap_err();
    assert!(matches!(late, SourceFault::Late { .. }) && !late.is_restart());
}

#[tokio::test]
async fn endless_answer_is_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ospfd.vty");
    daemon(&path, vec![vec![b' '; MAX_DATABASE_BYTES + (1 << 20)]]);
    let long = TopologySource::socket(path, LONG).read().await.unwrap_err();
    assert!(long.to_string().contains("bytes: at most"), "{long}");
}

#[tokio::test]
async fn commands_print_the_database_or_say_why_not() {
    let run = async |script: &str| {
        let arguments = vec!["-c".to_owned(), script.to_owned()];
        TopologySource::command("/bin/sh".into(), arguments, LONG)
            .read()
            .await
    };
    assert_eq!(run("echo '{}'").await.unwrap(), "{}\n");
    let failed = run("echo Exiting: no daemons >&2; exit 1")
        .await
        .unwrap_err();
    let text = failed.to_string();
    assert!(
        text.starts_with("/bin/sh: exit status: 1: Exiting: no daemons"),
        "{text}"
    );
    let binary = run("printf '\\377'").await.unwrap_err();
    assert!(binary.to_string().contains("not UTF-8"), "{binary}");
}
