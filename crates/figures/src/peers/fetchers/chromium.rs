//! Chromium, which loads a page over HTTPS. The page fetches the file, and Chromium prints the
//! resulting document.

use std::net::SocketAddrV4;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::super::place::{PeerNode, Serving, write};
use super::super::{Item, Need, http};
use super::{SHELL, prepare};

pub(super) const CHROMIUM: Need = Need {
    program: "chromium",
    package: "chromium",
};
pub(super) const OPENSSL: Need = Need {
    program: "openssl",
    package: "openssl",
};

/// Port of the HTTPS server in its node.
const PORT: u16 = 8443;
const PAGE_NAME: &str = "fetch.html";

/// Script that fetches the file named after the address's `?` before the page counts as loaded, and
/// makes its bytes the page's text.
const PAGE: &str = "<!doctype html><html lang=\"en\"><title>fetch</title><body><script>
const request = new XMLHttpRequest();
request.open('GET', '/' + location.search.slice(1), false);
request.overrideMimeType('text/plain; charset=x-user-defined');
request.send();
const text = request.responseText;
const parts = [];
for (let at = 0; at < text.length; at += 8192) {
  const codes = Array.from(text.slice(at, at + 8192), (letter) => letter.charCodeAt(0) & 0xff);
  parts.push(String.fromCharCode(...codes));
}
document.body.textContent = btoa(parts.join(''));
</script>
";

/// Serves `root` over HTTPS, with its own certificate and the page next to the file.
pub(super) fn serve(place: &PeerNode, root: &Path) -> Result<Serving> {
    let settings = place.settings()?;
    write(&root.join(PAGE_NAME), PAGE)?;
    let (key, certificate) = (
        settings.path().join("key.pem"),
        settings.path().join("cert.pem"),
    );
    let mut make = Command::new(OPENSSL.find()?);
    make.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
    ])
    .args(["-nodes", "-days", "2", "-subj", "/CN=server"])
    .arg("-keyout")
    .arg(&key)
    .arg("-out")
    .arg(&certificate);
    prepare(make, settings.path(), "openssl")?;
    let (key, certificate) = (key.to_string_lossy(), certificate.to_string_lossy());
    let options = ["--cert", &certificate, "--key", &key];
    http::serve_with(place, settings, root, PORT, &options)
}

/// Prints the page's document, and takes the file out of it. The certificate is nobody's, so it is
/// not checked; as root there is no sandbox to be had.
pub(super) fn fetch(place: &PeerNode, from: &Serving, item: &Item, to: &Path) -> Result<Command> {
    let mut command = place.client(&SHELL, from)?;
    let script = format!(
        "name=$1 to=$2; shift 2; {} --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
         --no-first-run --ignore-certificate-errors \
         --user-data-dir='{}' --dump-dom \"$@\" 'https://{}/{PAGE_NAME}?'\"$name\" | grep -o \
         '[A-Za-z0-9+/=]\\{{64,\\}}' | base64 --decode >\"$to\"",
        CHROMIUM.find()?.display(),
        from.setting("chromium").display(),
        from.endpoint.address,
    );
    command
        .arg("-c")
        .arg(script)
        .arg("sh")
        .arg(&item.name)
        .arg(to.join(&item.name));
    if let Some(socks) = from.endpoint.socks {
        command.arg(format!("--proxy-server=socks5://{socks}"));
    }
    Ok(command)
}

/// Tells it of an HTTP proxy, which it asks to connect to servers of HTTPS.
pub(super) fn tunnel(command: &mut Command, proxy: SocketAddrV4) {
    command.arg(format!("--proxy-server=http://{proxy}"));
}
