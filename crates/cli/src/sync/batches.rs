//! Batches of requests to change names.

/// Number of requests that are sent without waiting.
const REQUESTS_AT_ONCE: usize = 64;
/// Maximum length of the paths in these requests, in bytes.
const MAX_PATH_BYTES: usize = 16 << 10;

/// Divides changes into batches whose requests fit into the buffers of a connection. `path_bytes`
/// returns the length of the paths in the request for a change.
pub fn batches<T>(changes: &[T], path_bytes: impl Fn(&T) -> usize) -> Vec<&[T]> {
    let mut batches = Vec::new();
    let mut rest = changes;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = rest.iter().take(REQUESTS_AT_ONCE).take_while(|change| {
            bytes += path_bytes(change);
            bytes <= MAX_PATH_BYTES
        });
        let (batch, others) = rest.split_at(fits.count().max(1));
        batches.push(batch);
        rest = others;
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_bounded_and_complete() {
        let lengths: Vec<usize> = (0..2000).map(|n| n * 20).collect();
        let batches = batches(&lengths, |length| *length);
        assert_eq!(batches.concat(), lengths);
        for batch in batches {
            assert!(batch.len() == 1 || batch.iter().sum::<usize>() <= MAX_PATH_BYTES);
            assert!(batch.len() <= REQUESTS_AT_ONCE);
        }
    }
}
