//! The meaning of each form of a source path, checked with every kind of end.

use std::path::Path;
use std::process::Output;

use crate::common::login::Login;
use crate::stage::{Service, Stage, errors};

/// Content of `dir`, relative to the directory that it is named from.
const INSIDE: [&str; 3] = ["f", "sub/g", "~"];

/// Forms with the same meaning everywhere, and where the content of `dir` is found after the copy.
const FORMS: [(&str, &str); 5] = [
    ("dir", "dir/"),
    ("dir/", "dir/"),
    ("dir/.", ""),
    ("dir/./", ""),
    (".", "dir/"),
];

/// Runs one copy, and lists what is found beneath its destination.
struct Trial<'a> {
    stage: &'a Stage,
    server: &'a Service,
    login: &'a Login,
}

impl Trial<'_> {
    fn cp(&self, arguments: &[&str]) -> Output {
        let options = [
            "--host-key",
            &self.server.key,
            "--identity",
            "me/identity",
            "-r",
        ];
        self.login
            .cp(self.stage.tmp.path(), &[&options[..], arguments].concat())
    }

    /// Copies `source` to `destination`, which is `found` on this machine, and asserts its content.
    fn assert_copied(&self, source: &str, destination: &str, found: &Path, expected: &[String]) {
        let copied = self.cp(&[source, destination]);
        let said = errors(&copied);
        assert_eq!(
            copied.status.code(),
            Some(0),
            "{source} {destination}: {said}"
        );
        let mut files = files(found, "");
        files.sort();
        assert_eq!(files, expected, "{source} {destination}");
    }
}

/// Returns the files beneath a directory.
fn files(dir: &Path, prefix: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path(), &format!("{name}/"))),
            false => found.push(name),
        }
    }
    found
}

#[test]
fn each_form_of_a_source_means_the_same_everywhere() {
    let stage = Stage::new();
    let login = Login::new(stage.path("host"));
    let server = stage.serve(&[]);
    let sources = [stage.path("here"), stage.path("root"), login.home()];
    for base in &sources {
        std::fs::create_dir_all(base.join("dir/sub")).unwrap();
        INSIDE
            .iter()
            .for_each(|file| std::fs::write(base.join("dir").join(file), file).unwrap());
    }
    // Source and destination are different directories.
    let (here, there) = (stage.path("here"), login.home());
    let address = &server.address;
    let trial = Trial {
        stage: &stage,
        server: &server,
        login: &login,
    };
    std::fs::create_dir(stage.path("got")).unwrap();
    std::thread::scope(|scope| {
        for (kind, prefix) in [
            ("local", format!("{}/", here.display())),
            ("server", format!("lh://{address}/")),
            ("login", "host:".to_owned()),
        ] {
            let (trial, stage) = (&trial, &stage);
            scope.spawn(move || {
                for (number, (form, inside)) in FORMS.iter().enumerate() {
                    let expected = INSIDE.map(|file| format!("{inside}{file}"));
                    let name = format!("got/{kind}{number}/");
                    let source = format!("{prefix}{form}");
                    trial.assert_copied(&source, &name, &stage.path(&name), &expected);
                }
                for (number, form) in ["dir/~", "./dir//~"].iter().enumerate() {
                    let name = format!("got/{kind}-tilde{number}/");
                    let source = format!("{prefix}{form}");
                    trial.assert_copied(&source, &name, &stage.path(&name), &["~".to_owned()]);
                }
            });
        }
    });
    // From here to there, and between two logins.
    for (number, (form, inside)) in [FORMS[1], FORMS[2]].into_iter().enumerate() {
        let expected = INSIDE.map(|file| format!("{inside}{file}"));
        let local = format!("here/{form}");
        let found = stage.path(&format!("root/pushed{number}"));
        trial.assert_copied(
            &local,
            &format!("lh://{address}/pushed{number}/"),
            &found,
            &expected,
        );
        let found = there.join(format!("pushed{number}"));
        trial.assert_copied(&local, &format!("host:pushed{number}/"), &found, &expected);
        let found = there.join(format!("between{number}"));
        let source = format!("host:{form}");
        trial.assert_copied(
            &source,
            &format!("host:between{number}/"),
            &found,
            &expected,
        );
    }
    // A login's home directory has no name; a file called `~` has one.
    for source in ["host:~/dir/.", "host:dir/."] {
        let name = format!("got/{}/", source.replace(['/', ':', '~'], "_"));
        let expected = INSIDE.map(str::to_owned);
        trial.assert_copied(source, &name, &stage.path(&name), &expected);
    }
    std::fs::write(there.join("~"), "~").unwrap();
    trial.assert_copied(
        "host:./~",
        "got/tilde/",
        &stage.path("got/tilde"),
        &["~".to_owned()],
    );
    let home = trial.cp(&["host:~", "got/home/"]);
    assert_eq!(home.status.code(), Some(0), "{}", errors(&home));
    assert!(stage.path("got/home/dir/f").is_file() && stage.path("got/home/~").is_file());
}
