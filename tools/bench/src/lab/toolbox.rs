//! `millrace lab list-tools`: the tools that the lab can use here, and how to get the others.

use std::process::ExitCode;

use clap::Command;
use lab::tools;

use crate::bench::contender::Contender;
use crate::bench::table::Table;

/// Programs that every distribution packages, and their purpose.
const TOOLS: [(&str, &str); 6] = [
    ("wg", "every tunnel: keys and configuration"),
    ("ping", "round trip times: demo, bench, tests"),
    ("iperf3", "TCP load: bench, tests"),
    ("wg-quick", "tests of wg-quick with Millrace"),
    ("nft", "routers that translate addresses: tests"),
    ("ip", "nothing of the lab; handy in `lab shell`"),
];

/// Builds the command's `clap` definition.
pub(super) fn command() -> Command {
    Command::new("list-tools").about("Say which programs the lab finds, and how to get the others")
}

/// Prints the list. Returns 0 even if tools are missing.
pub(super) fn run() -> ExitCode {
    terminal::say(table().render());
    ExitCode::SUCCESS
}

fn table() -> Table {
    let mut table = Table::of_words(["tool", "what for", "here"]);
    for (name, purpose) in TOOLS {
        let here = match tools::find(name) {
            Ok(path) => path.display().to_string(),
            Err(error) => error.to_string(),
        };
        table.row([name, purpose, &here]);
    }
    for contender in [
        Contender::WireguardGo,
        Contender::WireguardGoPackaged,
        Contender::BoringTun,
        Contender::GotaTun,
    ] {
        let here = match contender.carrier() {
            Ok(_) => contender.version(),
            Err(error) => error.to_string(),
        };
        table.row([contender.name(), &contender.what(), &here]);
    }
    let tun = tools::tun().map_or_else(|error| error.to_string(), |()| "usable".to_owned());
    table.row(["/dev/net/tun", "every tunnel", &tun]);
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_has_a_row() {
        let rows = table().render().lines().count();
        assert_eq!(rows, 2 + TOOLS.len() + 4 + 1);
    }
}
