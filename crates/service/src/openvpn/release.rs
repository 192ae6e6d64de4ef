//! The version, in the form that OpenVPN tools parse.

/// The release of OpenVPN that this program behaves like and is tested with.
const RELEASE: &str = "2.6.14";

/// The program's name and version where the stock program has its own: `--version`, the log's first
/// line, `version` at the management port, the head of status files. Monitoring programs split it
/// at its spaces: the second word is three numbers, the third is the machine, and brackets follow.
pub(super) fn title() -> String {
    format!(
        "OpenVPN {RELEASE} {}-linux [millrace {}] [AEAD]",
        std::env::consts::ARCH,
        env!("CARGO_PKG_VERSION")
    )
}
