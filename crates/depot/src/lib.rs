//! The session-layer relay: accept, authorise, dial on, splice, drain.
