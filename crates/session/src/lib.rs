//! A byte stream over a route of depots, secured end to end.
