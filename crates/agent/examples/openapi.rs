//! Prints the API's description, of which the web page keeps a copy: `cargo run -p longhaul-agent
//! --example openapi > web/openapi.json`.

#![allow(missing_docs)]

fn main() {
    print!("{}", longhaul_agent::http::description());
}
