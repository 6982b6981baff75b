//! Mirrors over ssh.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Output;

use crate::common::mirror::describe;
use crate::hosts::Hosts;

fn sync(hosts: &Hosts, arguments: &[&str]) -> Output {
    let mut command = hosts.unprivileged();
    command
        .args(["sync", "-F", "config", "-q"])
        .args(arguments)
        .output()
        .unwrap()
}

fn done(output: &Output) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
}

#[test]
fn mirrors_over_ssh_copy_and_remove_both_ways() {
    let Some(hosts) = Hosts::up(&["alpha"]) else {
        return;
    };
    let (here, there) = (hosts.path("here"), hosts.home("alpha").join("mirror"));
    for (path, content) in [
        ("a/x", "x"),
        ("b", "b"),
        ("c.o", "here"),
        (".longhaulignore", "*.o\n"),
    ] {
        let file = here.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
    }
    done(&sync(&hosts, &["here", "alpha:mirror"]));
    fs::write(there.join("surplus"), "x").unwrap();
    fs::write(there.join("d.o"), "there").unwrap();
    fs::remove_file(here.join("b")).unwrap();
    let before = describe(&there);
    done(&sync(&hosts, &["--delete", "-n", "here", "alpha:mirror"]));
    assert_eq!(describe(&there), before);
    done(&sync(&hosts, &["--delete", "here", "alpha:mirror"]));
    assert!(!there.join("surplus").exists() && !there.join("b").exists());
    assert!(there.join("d.o").exists() && !there.join("c.o").exists());
    // Back again, without the rules of the source.
    fs::write(here.join("surplus"), "x").unwrap();
    done(&sync(
        &hosts,
        &["--delete", "--no-ignore-files", "alpha:mirror/", "here"],
    ));
    assert_eq!(describe(&here), describe(&there));
}

#[test]
fn files_renamed_over_ssh_do_not_travel() {
    let Some(hosts) = Hosts::up(&["alpha"]) else {
        return;
    };
    let (here, there) = (hosts.path("here"), hosts.home("alpha").join("mirror"));
    fs::create_dir_all(here.join("old")).unwrap();
    fs::write(here.join("old/f"), "content").unwrap();
    done(&sync(&hosts, &["here", "alpha:mirror"]));
    // An existing directory that a copy over ssh goes to keeps its own time.
    let below = |dir: &Path| {
        let mut entries = describe(dir);
        entries.remove(Path::new(""));
        entries
    };
    for (source, target, arguments) in [
        (&here, &there, ["--delete", "here", "alpha:mirror"]),
        (&there, &here, ["--delete", "alpha:mirror/", "here"]),
    ] {
        let file = fs::metadata(target.join("old/f")).unwrap().ino();
        fs::rename(source.join("old"), source.join("new")).unwrap();
        done(&sync(&hosts, &arguments));
        assert_eq!(below(source), below(target));
        assert_eq!(fs::metadata(target.join("new/f")).unwrap().ino(), file);
        fs::rename(source.join("new"), source.join("old")).unwrap();
        done(&sync(&hosts, &arguments));
    }
}
