//! Embeds the web page's files from `web/dist` into the program, if they have been built.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dist = Path::new(&std::env::var("CARGO_MANIFEST_DIR")?).join("../../web/dist");
    // A missing path would always count as changed. The first build of the page touches this file.
    if dist.exists() {
        println!("cargo:rerun-if-changed={}", dist.display());
    }
    println!("cargo:rerun-if-changed=build.rs");
    let mut files = Vec::new();
    find(&dist, &mut files)?;
    files.sort();
    let mut list = String::from("/// The assets.\npub const ASSETS: &[Asset] = &[\n");
    for file in files {
        let Some(media_type) = media_type(&file) else {
            continue;
        };
        let path = file.strip_prefix(&dist)?.to_string_lossy().into_owned();
        let file = file.canonicalize()?;
        writeln!(
            list,
            "    Asset {{ path: {:?}, media_type: {media_type:?}, bytes: include_bytes!({:?}) }},",
            format!("/{path}"),
            file.to_string_lossy()
        )?;
    }
    list.push_str("];\n");
    std::fs::write(
        Path::new(&std::env::var("OUT_DIR")?).join("assets.rs"),
        list,
    )?;
    Ok(())
}

fn find(directory: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        match path.is_dir() {
            true => find(&path, files)?,
            false => files.push(path),
        }
    }
    Ok(())
}

/// Returns the media type of a file of the page; other files are left out.
fn media_type(file: &Path) -> Option<&'static str> {
    Some(match file.extension()?.to_str()? {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        _ => return None,
    })
}
