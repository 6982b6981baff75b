//! Encryption rate of one core: TLS 1.3's ciphers in the library that sessions use, in records of
//! TLS's largest size.

use std::time::{Duration, Instant};

use aws_lc_rs::aead::{
    AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};

use crate::fact::{CommandName, Fact};
use crate::facts::CipherRate;

/// Maximum bytes of a TLS record (RFC 8446, 5.1).
const RECORD: usize = 16 * 1024;
/// Long enough to outlast several time slices of another program.
const MEASURED_TIME: Duration = Duration::from_millis(40);

pub(super) fn measure() -> Fact<Vec<CipherRate>> {
    // The order of preference of sessions.
    let ciphers = [
        ("aes-256-gcm", &AES_256_GCM),
        ("chacha20-poly1305", &CHACHA20_POLY1305),
    ];
    ciphers
        .iter()
        .map(|(name, algorithm)| {
            Ok(CipherRate {
                cipher: CommandName::new(name).map_err(|error| error.to_string())?,
                bytes_per_second: rate(algorithm).map_err(|_| format!("{name} cannot be used"))?,
            })
        })
        .collect::<Result<_, String>>()
        .into()
}

fn rate(algorithm: &'static Algorithm) -> Result<u64, aws_lc_rs::error::Unspecified> {
    let key = LessSafeKey::new(UnboundKey::new(algorithm, &vec![7; algorithm.key_len()])?);
    let mut record = vec![0; RECORD];
    let mut seal = |number: u32| {
        let mut nonce = [0; 12];
        nonce[..4].copy_from_slice(&number.to_be_bytes());
        key.seal_in_place_separate_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::empty(),
            &mut record,
        )
        .map(|_| ())
    };
    // Warms up tables and caches.
    seal(0)?;
    let (start, mut records) = (Instant::now(), 0u32);
    while start.elapsed() < MEASURED_TIME {
        records += 1;
        seal(records)?;
    }
    Ok((f64::from(records) * RECORD as f64 / start.elapsed().as_secs_f64()) as u64)
}

#[cfg(test)]
mod tests {
    #[test]
    fn both_ciphers_have_a_rate() {
        let rates = super::measure();
        let rates = rates.known().unwrap();
        assert_eq!(rates.len(), 2);
        assert!(
            rates.iter().all(|rate| rate.bytes_per_second > 0),
            "{rates:?}"
        );
    }
}
