//! `millrace doctor`: finds faults in this box's set-up, and their remedies.

mod checks;
mod facts;
pub(crate) mod gather;
#[cfg(feature = "openwrt")]
mod report;

use crate::arguments::flag;
use crate::{Outcome, code, print_json};
use checks::{CHECKS, Finding};
use clap::{ArgMatches, Command};
use service::running;
use std::fmt::Write as _;

/// The command-line definition of `doctor`.
pub(crate) fn command() -> Command {
    let command = Command::new("doctor")
        .about("Find faults in this host's set-up, with remedies")
        .long_about(
            "Find faults in this host's set-up, with remedies. Checks the tunnel device, clock, routes, name servers, \
             MTU, offloads, rules of other programs, open ports, forwarding, masquerading, tunnels of one account, addresses, files with secrets, \
             certificates that end soon, the kernel, memory, and which tunnels start after a reboot. Changes nothing. \
             Run it as root: checks that need root are skipped otherwise.",
        )
        .arg(flag("json", "Print a JSON array"));
    #[cfg(feature = "openwrt")]
    let command = report::arguments(command);
    command
}

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> Outcome {
    #[cfg(feature = "openwrt")]
    if let Some(outcome) = report::run(matches) {
        return outcome;
    }
    let hidden = running::all().err().map(|it| it.to_string());
    let statuses = crate::status::now();
    let hidden = hidden.or_else(|| statuses.as_ref().err().map(ToString::to_string));
    if let Some(why) = &hidden {
        log::error!("{why}");
    }
    let facts = gather::gather(&statuses.unwrap_or_default());
    let found = checks::all(&facts);
    match matches.get_flag("json") {
        true => print_json(&found)?,
        false => host::terminal::print(text(&found))?,
    }
    Ok(code(found.is_empty() && hidden.is_none()))
}

fn text(found: &[Finding]) -> String {
    if found.is_empty() {
        // One check is not in the list: services that start after a reboot.
        return format!("no faults found in {} checks\n", CHECKS.len() + 1);
    }
    let mut text = String::new();
    for finding in found {
        let Finding {
            check,
            what,
            place,
            remedy,
        } = finding;
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{check}: {what}\n    where: {place}\n    do:    {remedy}"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_is_documented() {
        let text = || "text".to_owned();
        let finding = Finding {
            check: "check",
            what: text(),
            place: text(),
            remedy: text(),
        };
        crate::tests::assert_documented("doctor", &[serde_json::to_value(finding).unwrap()]);
    }
}
