//! Object stores of other projects: how each is started, and how the command finds it.

use std::io::{Read, Write};
use std::net::TcpStream;

use aws_lc_rs::hmac;
use data_encoding::BASE64;

use super::peers::Peer;

/// Bucket or container of the tests.
pub const BUCKET: &str = "runs";
/// Account and key that every Azurite has.
const AZURE_ACCOUNT: &str = "devstoreaccount1";
const AZURE_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const GOOGLE_TOKEN: &str = "ya29.example";

/// A kind of object store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cloud {
    S3,
    Azure,
    Google,
}

impl Cloud {
    pub const ALL: [Self; 3] = [Self::S3, Self::Azure, Self::Google];

    /// Returns the location of a key.
    pub fn location(self, key: &str) -> String {
        let scheme = match self {
            Self::S3 => "s3",
            Self::Azure => "az",
            Self::Google => "gs",
        };
        format!("{scheme}://{BUCKET}/{key}")
    }

    /// Starts it, with the bucket. Returns `None`, and prints why, if it cannot be installed.
    pub fn start(self) -> Option<Peer> {
        match self {
            Self::S3 => {
                let peer = Peer::moto(&[], &[])?;
                let made = peer.request("PUT", &format!("/{BUCKET}"));
                assert!(made.starts_with("HTTP/1.1 200"), "{made}");
                Some(peer)
            }
            Self::Azure => {
                let peer = Peer::azurite()?;
                make_container(&peer.address);
                Some(peer)
            }
            Self::Google => Peer::google(BUCKET, GOOGLE_TOKEN),
        }
    }

    /// Returns the variables with which the command uses the store at an address.
    pub fn variables(self, address: &str) -> Vec<(&'static str, String)> {
        match self {
            Self::S3 => vec![
                ("AWS_ENDPOINT_URL", format!("http://{address}")),
                ("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE".to_owned()),
                ("AWS_SECRET_ACCESS_KEY", "secret".to_owned()),
            ],
            Self::Azure => {
                let endpoint = format!("http://{address}/{AZURE_ACCOUNT}");
                vec![(
                    "AZURE_STORAGE_CONNECTION_STRING",
                    format!(
                        "DefaultEndpointsProtocol=http;AccountName={AZURE_ACCOUNT};\
                         AccountKey={AZURE_KEY};BlobEndpoint={endpoint};"
                    ),
                )]
            }
            Self::Google => vec![
                ("STORAGE_EMULATOR_HOST", address.to_owned()),
                ("GOOGLE_BEARER_TOKEN", GOOGLE_TOKEN.to_owned()),
            ],
        }
    }

    /// Returns the variable that replaces the right credentials by wrong ones. S3 has another
    /// server for this.
    pub fn wrong_credentials(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::S3 => None,
            Self::Azure => Some(("AZURE_STORAGE_KEY", "d3Jvbmc=")),
            Self::Google => Some(("GOOGLE_BEARER_TOKEN", "wrong")),
        }
    }
}

/// Creates the container at an Azurite.
fn make_container(address: &str) {
    let path = format!("/{AZURE_ACCOUNT}/{BUCKET}");
    let date = jiff::Timestamp::now().strftime("%a, %d %b %Y %H:%M:%S GMT");
    let headers = format!("x-ms-date:{date}\nx-ms-version:2021-08-06\n");
    // <https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key>
    let signed =
        format!("PUT\n\n\n\n\n\n\n\n\n\n\n\n{headers}/{AZURE_ACCOUNT}{path}\nrestype:container");
    let key = hmac::Key::new(
        hmac::HMAC_SHA256,
        &BASE64.decode(AZURE_KEY.as_bytes()).unwrap(),
    );
    let signature = BASE64.encode(hmac::sign(&key, signed.as_bytes()).as_ref());
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "PUT {path}?restype=container HTTP/1.1\r\nHost: {address}\r\nx-ms-date: {date}\r\n\
         x-ms-version: 2021-08-06\r\nAuthorization: SharedKey {AZURE_ACCOUNT}:{signature}\r\n\
         Content-Length: 0\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
}
