//! Changes of the path and of the application while a flow runs.
