//! Proof of the server's key in the QUIC handshake.

use std::io;
use std::sync::Arc;

use longhaul_proto::{PublicKey, SigningKey};
use longhaul_raw_keys::{SCHEMES, certified_key, only_tls13, presented_key, verify_handshake};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, ServerConfig, SignatureScheme,
};

/// Application protocol of a hop's connection.
const ALPN: &[u8] = b"longhaul-hop/1";
/// Top-level label of the names that carry an expected key, and the name if any key is accepted.
const ANY_KEY_NAME: &str = "longhaul";
/// Prefix of a key's text.
const KEY_PREFIX: &str = "lhk1:";

/// Returns the configuration of a server that proves `key`.
pub(crate) fn server_config(key: &SigningKey) -> io::Result<ServerConfig> {
    let certified = certified_key(key).map_err(io::Error::other)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::new(
            certified,
        ))));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// Returns the configuration of a client, for connections to any server. Each connection's server
/// name states the expected key: see [`server_name`].
pub(crate) fn client_config() -> io::Result<ClientConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = NamedKeyVerifier {
        algorithms: provider.signature_verification_algorithms,
    };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(io::Error::other)?
        .dangerous() // uses the verifier of this module
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// Returns the server name of a connection that accepts `key` only, or any key if `None`.
///
/// The server ignores the name. It lets one client configuration check a different key on each
/// connection.
pub(crate) fn server_name(key: Option<&PublicKey>) -> String {
    key.map_or_else(
        || ANY_KEY_NAME.to_owned(),
        |key| {
            let text = key.to_string();
            let digits = text.strip_prefix(KEY_PREFIX).unwrap_or(&text);
            format!("{digits}.{ANY_KEY_NAME}")
        },
    )
}

/// Returns the key that a server name states; `None` if it accepts any.
fn expected_key(name: &ServerName<'_>) -> Result<Option<PublicKey>, rustls::Error> {
    let text = name.to_str();
    if text == ANY_KEY_NAME {
        return Ok(None);
    }
    text.strip_suffix(ANY_KEY_NAME)
        .and_then(|digits| digits.strip_suffix('.'))
        .and_then(|digits| format!("{KEY_PREFIX}{digits}").parse().ok())
        .map(Some)
        .ok_or_else(|| CertificateError::NotValidForName.into())
}

/// Checks that the server has the key that the connection's server name states.
#[derive(Debug)]
struct NamedKeyVerifier {
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for NamedKeyVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let found = presented_key(end_entity)?;
        match expected_key(server_name)? {
            Some(expected) if expected != found => {
                Err(CertificateError::ApplicationVerificationFailure.into())
            }
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(only_tls13())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_handshake(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        SCHEMES.to_vec()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_name_states_the_expected_key() {
        let key = SigningKey::generate().unwrap().public();
        let name = ServerName::try_from(server_name(Some(&key))).unwrap();
        assert_eq!(expected_key(&name).unwrap(), Some(key));
        let name = ServerName::try_from(server_name(None)).unwrap();
        assert_eq!(expected_key(&name).unwrap(), None);
        let name = ServerName::try_from("depot.example").unwrap();
        assert!(expected_key(&name).is_err());
    }
}
