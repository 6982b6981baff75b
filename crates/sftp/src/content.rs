//! Content of files at a host.

use std::path::Path;

use futures_util::stream::{FuturesOrdered, StreamExt};
use longhaul_transfer::{Failure, FailureKind};

use crate::error::RequestError;
use crate::pool::Pool;
use crate::remote_file::{OpenMode, RemoteFile};

/// Reads that are under way for one hash.
const MAX_READS: usize = 64;

/// Reads `len` bytes from `offset`, in parts over any connections. The result is shorter if the
/// file ends.
pub(crate) async fn read_range(
    pool: &Pool,
    remote: &RemoteFile,
    offset: u64,
    len: u32,
) -> Result<Vec<u8>, RequestError> {
    let limit = pool.abilities().read_bytes.max(1);
    let parts = (0..len).step_by(limit as usize).map(|at| {
        let part = limit.min(len - at);
        read_part(pool, remote, offset + u64::from(at), part)
    });
    let mut data = Vec::with_capacity(len as usize);
    for part in futures_util::future::join_all(parts).await {
        data.extend_from_slice(&part?);
    }
    Ok(data)
}

/// Reads one part. A server may answer with less than was requested.
async fn read_part(
    pool: &Pool,
    remote: &RemoteFile,
    offset: u64,
    len: u32,
) -> Result<Box<[u8]>, RequestError> {
    let mut data = again!(pool, u64::from(len), |lease| async {
        let handle = remote.handle(&lease).await?;
        let data = lease.read(&handle, offset, len).await?;
        lease.carried(data.len() as u64);
        Ok(data)
    })?;
    while data.len() < len as usize && !data.is_empty() {
        let at = data.len() as u32;
        let rest = again!(pool, u64::from(len - at), |lease| async {
            let handle = remote.handle(&lease).await?;
            let data = lease
                .read(&handle, offset + u64::from(at), len - at)
                .await?;
            lease.carried(data.len() as u64);
            Ok(data)
        })?;
        if rest.is_empty() {
            break;
        }
        data = [data, rest].concat().into();
    }
    Ok(data)
}

/// Reads at most `len` bytes of the beginning of a file.
pub(crate) async fn read_beginning(pool: &Pool, path: &Path, len: u32) -> Result<Vec<u8>, Failure> {
    let remote = RemoteFile::new(path.to_path_buf(), OpenMode::Read);
    let read = read_range(pool, &remote, 0, len).await;
    let _ = remote.close(pool).await;
    Ok(read?)
}

/// Reads a file. Returns its BLAKE3 hash, and its size.
pub(crate) async fn hash(pool: &Pool, path: &Path) -> Result<(blake3::Hash, u64), Failure> {
    let remote = RemoteFile::new(path.to_path_buf(), OpenMode::Read);
    let described = again!(pool, 0, |lease| async {
        let handle = remote.handle(&lease).await?;
        lease.describe_open(&handle).await
    });
    let size = described?.size;
    let limit = pool.abilities().read_bytes.max(1);
    let mut offsets = (0..size).step_by(limit as usize);
    let mut hasher = blake3::Hasher::new();
    let mut reads = FuturesOrdered::new();
    loop {
        while reads.len() < MAX_READS
            && let Some(offset) = offsets.next()
        {
            let len = u64::from(limit).min(size - offset) as u32;
            let remote = &remote;
            reads.push_back(async move {
                let data = read_part(pool, remote, offset, len).await?;
                match data.len() == len as usize {
                    true => Ok(data),
                    false => Err(Failure::new(FailureKind::Changed)),
                }
            });
        }
        match reads.next().await {
            Some(data) => hasher.update(&data?),
            None => break,
        };
    }
    drop(reads);
    let _ = remote.close(pool).await;
    Ok((hasher.finalize(), size))
}
