//! `longhaul cp --device`: the content of a block device. Needs root and a free loop device.

use std::process::Command;

use crate::stage::*;

/// A loop device over a file.
struct LoopDevice(String);

impl LoopDevice {
    /// Returns `None` if this system has none to give.
    fn over(file: &std::path::Path) -> Option<Self> {
        let mut command = Command::new("losetup");
        let output = command.args(["--find", "--show", "-r"]).arg(file).output();
        let output = output.ok().filter(|output| output.status.success())?;
        let name = String::from_utf8(output.stdout).ok()?;
        Some(Self(name.trim().to_owned()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

#[test]
fn the_content_of_a_block_device_is_copied() {
    let stage = Stage::new();
    let content = stage.noise("disk", 3 << 20);
    std::fs::write(stage.path("disk"), &content).unwrap();
    let Some(device) = LoopDevice::over(&stage.path("disk")) else {
        eprintln!("left out: no loop device");
        return;
    };
    let server = stage.serve(&[]);
    let to = format!("lh://{}/image", server.address);
    let refused = stage.cp(&server, &[&device.0, &to]);
    assert_eq!(refused.status.code(), Some(1), "{}", errors(&refused));
    let copied = stage.cp(&server, &["--device", &device.0, &to]);
    assert_eq!(copied.status.code(), Some(0), "{}", errors(&copied));
    assert!(std::fs::read(stage.path("root/image")).unwrap() == content);
}
