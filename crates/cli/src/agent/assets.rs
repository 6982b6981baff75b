//! The files of the page, as they were built; none if they were not.

use longhaul_agent::http::Asset;

include!(concat!(env!("OUT_DIR"), "/assets.rs"));
