//! Measures TCP flows: what the kernel knows of a connection, read safely.
