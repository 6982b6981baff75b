//! File trees over sessions: walk, blocks, streams, integrity.
