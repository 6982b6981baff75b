//! Observation of the streams over one route of a copy.

/// Observation of a route.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RouteObservation {
    /// True if a stream over the route was begun.
    pub tried: bool,
    /// True if a stream over the route has been open.
    pub opened: bool,
    /// Number of streams that are open now.
    pub open: usize,
    /// Bytes that its streams have moved.
    pub moved: u64,
    /// True if its streams have something to move.
    pub busy: bool,
    /// True if no attempt can succeed.
    pub gone: bool,
}
