//! nginx, which serves files by HTTPS and WebDAV, and a certificate authority.

use std::fs;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use super::peers::{Peer, installed};

/// A certificate of 127.0.0.1 and of its authority, which only a test knows.
pub struct Certificate {
    /// File of the authority, for `SSL_CERT_FILE`.
    pub authority: PathBuf,
    pub chain: PathBuf,
    pub key: PathBuf,
}

impl Certificate {
    /// Makes it in a directory.
    pub fn new(directory: &Path) -> Self {
        fs::create_dir_all(directory).unwrap();
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let own_key = KeyPair::generate().unwrap();
        let authority = params.self_signed(&own_key).unwrap();
        let issuer = Issuer::new(params, own_key);
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        let write = |name: &str, text: String| {
            let file = directory.join(name);
            fs::write(&file, text).unwrap();
            file
        };
        Self {
            authority: write("authority.pem", authority.pem()),
            chain: write("chain.pem", certificate.pem()),
            key: write("key.pem", key.serialize_pem()),
        }
    }
}

/// Content that an nginx serves.
pub struct Served<'a> {
    pub root: &'a Path,
    /// Directory for its settings and temporary files.
    pub state: &'a Path,
    pub certificate: &'a Certificate,
    /// User and password.
    pub login: (&'a str, &'a str),
    /// Maximum size of a file to store, as nginx writes it. 0 is none.
    pub limit: &'a str,
}

impl Served<'_> {
    /// Starts it. Returns `None`, and prints why, if it cannot be installed.
    pub fn start(&self) -> Option<Peer> {
        let program = installed("nginx")?;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        fs::create_dir_all(self.root).unwrap();
        fs::create_dir_all(self.state).unwrap();
        let settings = self.state.join("nginx.conf");
        fs::write(&settings, self.settings(&address)).unwrap();
        let (user, password) = self.login;
        let login = format!("{user}:{{PLAIN}}{password}\n");
        fs::write(self.state.join("logins"), login).unwrap();
        let log = fs::File::create(self.state.join("log")).unwrap();
        let mut command = Command::new(program);
        command
            .arg("-c")
            .arg(settings)
            .arg("-p")
            .arg(self.state)
            .args(["-e", "stderr"])
            // It takes the open socket that has this address.
            .env("NGINX", "0;")
            .stdin(Stdio::from(OwnedFd::from(listener)))
            .stdout(Stdio::null())
            .stderr(log);
        Some(Peer::with_workers(&mut command, address))
    }

    fn settings(&self, address: &str) -> String {
        let (root, state) = (self.root.display(), self.state.display());
        let (chain, key) = (
            self.certificate.chain.display(),
            self.certificate.key.display(),
        );
        let limit = self.limit;
        // Otherwise the files of root would be served by nobody.
        let user = match rustix::process::geteuid().is_root() {
            true => "user root;",
            false => "",
        };
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|name| format!("{name}_temp_path {state}/{name};\n"))
            .collect();
        format!(
            "load_module /usr/lib/nginx/modules/ngx_http_dav_ext_module.so;\n\
             daemon off;\n{user}\npid {state}/pid;\nerror_log stderr;\nworker_processes 1;\n\
             events {{ worker_connections 256; }}\n\
             http {{\n{temporary}access_log off;\nclient_max_body_size {limit};\n\
             server {{\nlisten {address} ssl;\nssl_certificate {chain};\n\
             ssl_certificate_key {key};\nroot {root};\n\
             auth_basic files;\nauth_basic_user_file {state}/logins;\n\
             location / {{\ndav_methods PUT DELETE MKCOL COPY MOVE;\n\
             dav_ext_methods PROPFIND OPTIONS;\n}}\n}}\n}}\n"
        )
    }
}
