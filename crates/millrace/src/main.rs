//! Millrace: the fast VPN for small routers. This is the program; see `docs/architecture.md`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    commands::run()
}
