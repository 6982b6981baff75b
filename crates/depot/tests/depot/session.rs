//! The real ends, TLS and all, through depots.
