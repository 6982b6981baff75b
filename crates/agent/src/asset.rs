//! Files of the web page.

/// File of the page.
#[derive(Debug, Clone, Copy)]
pub struct Asset {
    /// Path, such as `/assets/index.js`.
    pub path: &'static str,
    /// Media type.
    pub media_type: &'static str,
    /// Content.
    pub bytes: &'static [u8],
}
