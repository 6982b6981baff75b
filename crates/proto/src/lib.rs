//! The Longhaul session protocol: messages, codec and state machines, without I/O or a clock.
