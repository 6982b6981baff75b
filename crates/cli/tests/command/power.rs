//! Power failures. A copy writes to a file system in an image, and a snapshot of the image at any
//! moment is what a power failure would have left. In every snapshot each file under its final name
//! is whole, and the same command completes the copy.
//!
//! The image lies on an XFS of its own, whose reflinks copy it atomically. `POWER_SNAPSHOTS` sets
//! how many snapshots of each copy are checked.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{noise, program};
use crate::stage::*;

const FILE_SYSTEMS: [&str; 3] = ["ext4", "xfs", "btrfs"];
/// Small files, files of several blocks that are whole before their first flush is due, and one
/// that is not.
const SMALL_FILES: usize = 200;
const MIDDLE_FILES: usize = 24;
const LARGE_BYTES: usize = 24_000_000;
/// Maximum snapshots taken of one copy.
const MAX_TAKEN: usize = 400;
const IMAGE_BYTES: u64 = 400 << 20;
const OUTER_BYTES: u64 = 4 << 30;
/// Maximum attempts to mount an image.
const MAX_MOUNTS: usize = 5;
/// Time limit for the last process that uses a file system.
const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(60);

/// A kind of copy to the disk.
#[derive(Clone, Copy, Debug)]
enum Mode {
    Local,
    Push,
    Pull,
    Ssh,
    Job,
    Depot,
}

const MODES: [Mode; 6] = [
    Mode::Local,
    Mode::Push,
    Mode::Pull,
    Mode::Ssh,
    Mode::Job,
    Mode::Depot,
];

/// A mounted image, unmounted on drop.
struct Mount(PathBuf);

impl Mount {
    /// The type is named, as the data of a copy may look like the mark of another one.
    fn new(file_system: &str, image: &Path, at: &Path) -> Self {
        let mut mount = Command::new("mount");
        mount.args(["-t", file_system, "-o", "loop"]);
        mount.arg(image).arg(at);
        // A loop device that was used a moment ago may still show parts of another image. What is
        // wrong in this one is wrong every time.
        let mut output = mount.output().unwrap();
        for _ in 1..MAX_MOUNTS {
            if output.status.success() {
                break;
            }
            output = mount.output().unwrap();
        }
        assert!(output.status.success(), "{}", errors(&output));
        Self(at.to_owned())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let unmount = |options: &[&str]| {
            let output = Command::new("umount").args(options).arg(&self.0).output();
            output.is_ok_and(|output| output.status.success())
        };
        // A process that is ending may still use it. No other image can be mounted until then, as
        // its file system has the same UUID.
        let deadline = Instant::now() + UNMOUNT_TIMEOUT;
        while !unmount(&[]) {
            if Instant::now() > deadline {
                unmount(&["-l"]);
                return;
            }
        }
    }
}

fn make_image(file_system: &str, image: &Path, bytes: u64) {
    File::create(image).unwrap().set_len(bytes).unwrap();
    let mut command = Command::new(format!("mkfs.{file_system}"));
    let output = command.arg("-q").arg(image).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
}

/// Returns true if images can be made and mounted here. Otherwise prints why.
fn has_images() -> bool {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not tested: mounting images needs root");
        return false;
    }
    for program in FILE_SYSTEMS.map(|file_system| format!("mkfs.{file_system}")) {
        if Command::new(&program).arg("-V").output().is_err() {
            eprintln!(
                "not tested: no {program} here (apt-get install e2fsprogs xfsprogs btrfs-progs)"
            );
            return false;
        }
    }
    true
}

/// Source and destination of a copy. `root/disk` is the mount point, and the server serves `root`.
struct Bed {
    stage: Stage,
    outer: PathBuf,
    _outer: Mount,
}

impl Bed {
    fn new() -> Self {
        let stage = Stage::new();
        let outer = stage.path("outer");
        fs::create_dir(&outer).unwrap();
        make_image("xfs", &stage.path("outer.image"), OUTER_BYTES);
        let mounted = Mount::new("xfs", &stage.path("outer.image"), &outer);
        fs::create_dir_all(stage.path("root/disk")).unwrap();
        let source = stage.path("root/tree");
        for number in 0..SMALL_FILES {
            let folder = source.join(format!("small/{}", number % 7));
            fs::create_dir_all(&folder).unwrap();
            fs::write(
                folder.join(number.to_string()),
                noise(4096 + number, number as u64 + 1),
            )
            .unwrap();
        }
        for number in 0..MIDDLE_FILES {
            let bytes = 300_000 + number * 110_000;
            fs::write(
                source.join(format!("middle-{number}")),
                noise(bytes, number as u64 + 7),
            )
            .unwrap();
        }
        fs::write(source.join("large"), noise(LARGE_BYTES, 3)).unwrap();
        Self {
            stage,
            outer,
            _outer: mounted,
        }
    }

    fn disk(&self) -> PathBuf {
        self.stage.path("root/disk")
    }

    fn image(&self, name: &str) -> PathBuf {
        self.outer.join(name)
    }

    /// Copies the image as it is at this moment.
    fn snapshot(&self, number: usize) {
        let image = File::open(self.image("image")).unwrap();
        let snapshot = File::create(self.image(&format!("snapshot-{number}"))).unwrap();
        rustix::fs::ioctl_ficlone(&snapshot, &image).unwrap();
    }

    /// Starts what the copy needs, and the command itself.
    fn start(&self, mode: Mode) -> Running {
        let stage = &self.stage;
        let mut services = Vec::new();
        let mut command = stage.longhaul("me");
        command.stderr(Stdio::piped()).stdout(Stdio::null());
        let mut agent = None;
        let far_disk = format!("root@localhost:{}/", self.disk().display());
        match mode {
            Mode::Local => drop(command.args(["cp", "-q", "-r", "root/tree", "root/disk/"])),
            Mode::Ssh => {
                let proxy = format!(
                    "ProxyCommand={} -i -f {}",
                    program("sshd").unwrap().display(),
                    self.sshd_settings().display()
                );
                let identity = stage.path("user-key");
                command.args([
                    "cp",
                    "-q",
                    "-r",
                    "-o",
                    &proxy,
                    "-o",
                    "StrictHostKeyChecking=no",
                ]);
                command.args([
                    "-o",
                    "UserKnownHostsFile=/dev/null",
                    "-o",
                    "LogLevel=ERROR",
                    "-i",
                ]);
                command.arg(identity).args(["root/tree", &far_disk]);
            }
            Mode::Push | Mode::Pull | Mode::Job | Mode::Depot => {
                let server = stage.serve(&[]);
                let remote = |path: &str| format!("lh://{}/{path}", server.address);
                let arguments = match mode {
                    Mode::Pull => [remote("tree"), "root/disk/".to_owned()],
                    _ => ["root/tree".to_owned(), remote("disk/")],
                };
                if let Mode::Job = mode {
                    agent = Some(crate::agent::Agent::start_by(stage.longhaul("me"), &[]));
                    let mut submit = stage.longhaul("me");
                    submit.args(["submit", "-r", "--json", "--host-key", &server.key]);
                    let output = submit.args(arguments).output().unwrap();
                    assert!(output.status.success(), "{}", errors(&output));
                    let job: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
                    command.args(["job", &job["id"].to_string(), "--follow"]);
                } else {
                    command.args(["cp", "-q", "-r", "--host-key", &server.key]);
                    if let Mode::Depot = mode {
                        let depot = stage.depot("depot", None);
                        command.args(["--route", &depot.address]);
                        services.push(depot);
                    }
                    command.args(arguments);
                }
                services.push(server);
            }
        }
        Running {
            child: command.spawn().unwrap(),
            _agent: agent,
            _services: services,
        }
    }

    /// Returns the settings of an sshd that serves one connection on its standard input, made if
    /// needed.
    fn sshd_settings(&self) -> PathBuf {
        let (stage, settings) = (&self.stage, self.stage.path("sshd_config"));
        if settings.exists() {
            return settings;
        }
        make_ssh_keys(stage);
        fs::create_dir_all("/run/sshd").unwrap();
        let longhaul = Path::new(env!("CARGO_BIN_EXE_longhaul")).parent().unwrap();
        let lines = [
            format!("HostKey {}", stage.path("host-key").display()),
            format!(
                "AuthorizedKeysFile {}",
                stage.path("user-key.pub").display()
            ),
            "PermitRootLogin prohibit-password\nUsePAM no\nStrictModes no\nPrintMotd no".to_owned(),
            format!("SetEnv PATH={}:/usr/bin:/bin", longhaul.display()),
        ];
        fs::write(&settings, lines.join("\n") + "\n").unwrap();
        settings
    }

    /// Compares the files under final names with the source. Returns their number.
    fn check(&self, all: bool, what: &str) -> usize {
        let (source, target) = (self.stage.path("root/tree"), self.disk().join("tree"));
        let mut there = 0;
        for file in files(&source) {
            let name = file.strip_prefix(&source).unwrap();
            match fs::read(target.join(name)) {
                Ok(data) => {
                    assert!(
                        data == fs::read(&file).unwrap(),
                        "{what}: {} is wrong",
                        name.display()
                    );
                    there += 1;
                }
                Err(error) => assert!(!all, "{what}: {}: {error}", name.display()),
            }
        }
        there
    }
}

/// A running copy, and what it needs.
struct Running {
    child: Child,
    _agent: Option<crate::agent::Agent>,
    _services: Vec<Service>,
}

impl Running {
    fn end(self, what: &str) {
        let output = self.child.wait_with_output().unwrap();
        assert!(output.status.success(), "{what}: {}", errors(&output));
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found
}

/// Copies onto a new file system, and checks snapshots of it.
fn fail_during_copy(bed: &Bed, file_system: &str, mode: Mode, checked: usize, ends_count: bool) {
    make_image(file_system, &bed.image("image"), IMAGE_BYTES);
    let mount = Mount::new(file_system, &bed.image("image"), &bed.disk());
    let synced = Command::new("sync")
        .arg("-f")
        .arg(bed.disk())
        .status()
        .unwrap();
    assert!(synced.success());
    let mut running = bed.start(mode);
    let (mut taken, mut seen) = (0, None);
    while running.child.try_wait().unwrap().is_none() {
        let image = fs::metadata(bed.image("image")).unwrap();
        let state = Some((image.blocks(), image.mtime_nsec()));
        if state == seen || taken == MAX_TAKEN {
            std::thread::yield_now();
            continue;
        }
        bed.snapshot(taken);
        (taken, seen) = (taken + 1, state);
    }
    running.end(&format!("{file_system}, {mode:?}"));
    // The same must hold at the end of the copy.
    bed.snapshot(taken);
    drop(mount);
    for number in 0..checked {
        // Spread over the copy. Half of the copies are checked at their end as well.
        let number = match number + 1 == checked && ends_count {
            true => taken,
            false => taken * (2 * number + 1) / (2 * checked),
        };
        let what = format!("{file_system}, {mode:?}, snapshot {number} of {taken}");
        let snapshot = bed.image(&format!("snapshot-{number}"));
        let _mount = Mount::new(file_system, &snapshot, &bed.disk());
        let there = bed.check(false, &what);
        bed.start(mode).end(&what);
        bed.check(true, &what);
        eprintln!("{what}: {there} files were there");
    }
    for number in 0..=taken {
        let _ = fs::remove_file(bed.image(&format!("snapshot-{number}")));
    }
}

#[test]
fn no_file_is_wrong_after_a_power_failure() {
    if !has_images() {
        return;
    }
    let checked = std::env::var("POWER_SNAPSHOTS").map_or(1, |text| text.parse().unwrap());
    let bed = Bed::new();
    for (n, file_system) in FILE_SYSTEMS.into_iter().enumerate() {
        for (m, mode) in MODES.into_iter().enumerate() {
            fail_during_copy(&bed, file_system, mode, checked, (n + m) % 2 == 1);
        }
    }
}
