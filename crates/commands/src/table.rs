//! The table of commands: it says the group, the definition and the action of each, and adds the examples.

use crate::*;
use clap::ArgMatches;
use clap::builder::{StyledStr, Styles};
use std::fmt::Write as _;

/// The commands that belong together in `millrace --help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    EveryDay,
    Servers,
    Lan,
    InPlace,
    Figures,
    Firmware,
    /// Commands that programs call, and no person: the help does not show them.
    Internal,
}

use Group::{EveryDay, Figures, Firmware, InPlace, Internal, Lan, Servers};

/// The groups that the help shows, with their headings.
const GROUPS: [(Group, &str); 6] = [
    (EveryDay, "Every day"),
    (Servers, "Servers"),
    (Lan, "Devices of the LAN"),
    (InPlace, "In place of other programs"),
    (Figures, "Figures"),
    (Firmware, "Builders of firmware and packages"),
];

/// A command: its group, definition and action.
pub(crate) struct Entry(
    pub(crate) Group,
    fn() -> Command,
    pub(crate) fn(&ArgMatches) -> Outcome,
);

/// All commands, in the order of the help.
///
/// Actions are called by pointer: the compiler would inline functions that are called once. That makes the caller a
/// tenth larger, and all of them together would use 12 KB of stack there.
pub(crate) const ENTRIES: &[Entry] = &[
    Entry(EveryDay, up::command, up::run),
    Entry(EveryDay, down::command, down::run),
    Entry(EveryDay, restart::command, restart::run),
    Entry(EveryDay, reload::command, reload::run),
    Entry(EveryDay, status::command, status::run),
    Entry(EveryDay, list::command, list::run),
    Entry(EveryDay, logs::command, logs::run),
    Entry(EveryDay, check::command, check::run),
    Entry(EveryDay, import::command, import::run),
    #[cfg(feature = "server")]
    Entry(EveryDay, pool::command, pool::run),
    Entry(EveryDay, doctor::command, doctor::run),
    #[cfg(feature = "server")]
    Entry(Servers, server::command, server::run),
    #[cfg(feature = "server")]
    Entry(Servers, peer::command, peer::run),
    #[cfg(feature = "relay")]
    Entry(Servers, up::relay_command, up::relay),
    #[cfg(feature = "monitor")]
    Entry(Servers, monitor::command, monitor::run),
    #[cfg(feature = "monitor")]
    Entry(Servers, alerts::command, alerts::run),
    Entry(Lan, guard::command, guard::run),
    #[cfg(feature = "policy")]
    Entry(Lan, policy::command, policy::run),
    #[cfg(feature = "policy")]
    Entry(Lan, forward::command, forward::run),
    Entry(Lan, leaks::command, leaks::run),
    Entry(InPlace, wireguard::command, wireguard::run),
    Entry(InPlace, openvpn::command, openvpn::run),
    #[cfg(feature = "postquantum")]
    Entry(InPlace, pq::command, pq::run),
    Entry(InPlace, keys::genkey_command, keys::genkey),
    Entry(InPlace, keys::genpsk_command, keys::genpsk),
    Entry(InPlace, keys::pubkey_command, keys::pubkey),
    #[cfg(all(feature = "openwrt", feature = "pptp"))]
    Entry(InPlace, migrate::command, migrate::run),
    Entry(Figures, tune::command, tune::run),
    #[cfg(feature = "speed")]
    Entry(Figures, tools::speed::command, |it| {
        Ok(tools::speed::run(it))
    }),
    #[cfg(feature = "lab")]
    Entry(Figures, tools::bench::command, |it| {
        Ok(tools::bench::run(it))
    }),
    #[cfg(feature = "lab")]
    Entry(Figures, tools::demo::command, |it| Ok(tools::demo::run(it))),
    #[cfg(feature = "lab")]
    Entry(Figures, tools::lab::command, |it| Ok(tools::lab::run(it))),
    #[cfg(feature = "audit")]
    Entry(Firmware, audit::command, audit::run),
    #[cfg(feature = "manual")]
    Entry(Firmware, manual::man_command, manual::man),
    #[cfg(feature = "manual")]
    Entry(Firmware, manual::completions_command, manual::completions),
    #[cfg(feature = "openwrt")]
    Entry(Internal, netifd::command, netifd::run),
    #[cfg(feature = "openwrt")]
    Entry(Internal, rpcd::command, |it| Ok(rpcd::run(it))),
];

/// Command lines that the commands' help shows, each with its effect.
const EXAMPLES: &str = include_str!("examples.txt");

/// The examples of a command.
fn examples(name: &str) -> impl Iterator<Item = &'static str> {
    EXAMPLES
        .lines()
        .filter(move |line| line.split_whitespace().nth(1) == Some(name))
}

impl Entry {
    /// The command's definition, with its examples.
    pub(crate) fn command(&self) -> Command {
        let command = self.1().hide(self.0 == Internal);
        let header = Styles::styled();
        let header = header.get_header();
        let mut examples_text = format!("{header}Examples:{header:#}");
        for line in examples(command.get_name()) {
            let _ = write!(examples_text, "\n  {line}");
        }
        let with = |more: &StyledStr| format!("{}\n\n{examples_text}", more.ansi());
        let short = command.get_after_help().map(with);
        let long = command.get_after_long_help().map(with);
        let command = command.after_help(short.unwrap_or(examples_text));
        match long {
            Some(long) => command.after_long_help(long),
            None => command,
        }
    }
}

/// The layout of `millrace --help`, with the commands by groups.
pub(crate) fn overview(cli: &Command) -> String {
    let styles = Styles::styled();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (group, heading) in GROUPS {
        let of_group = ENTRIES.iter().zip(cli.get_subcommands());
        let of_group: Vec<&Command> = of_group
            .filter(|(entry, _)| entry.0 == group)
            .map(|it| it.1)
            .collect();
        if of_group.is_empty() {
            continue;
        }
        let _ = write!(text, "\n{header}{heading}:{header:#}\n");
        for command in of_group {
            let names: Vec<&str> = command.get_name_and_visible_aliases();
            let names = names.join(", ");
            let about = command.get_about().map(StyledStr::ansi);
            let _ = writeln!(
                text,
                "  {literal}{names:11}{literal:#}  {}",
                about.map(|it| it.to_string()).unwrap_or_default()
            );
        }
    }
    let _ = write!(
        text,
        "\n{header}Options:{header:#}\n{{options}}\n\n\
         `millrace help COMMAND` explains a command and shows examples; docs/json.md\n\
         lists the exit codes and the JSON of all commands."
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each command line of an example: the parts of a pipe, without redirections and the effect.
    fn command_lines(example: &'static str) -> Vec<Vec<&'static str>> {
        let line = example.split(" # ").next().unwrap();
        let parts = line.split('|');
        let parts = parts.map(|it| {
            it.split_whitespace()
                .take_while(|it| !it.starts_with(['<', '>']))
        });
        let parts = parts.map(Iterator::collect::<Vec<_>>);
        parts.filter(|it| it.first() == Some(&"millrace")).collect()
    }

    #[test]
    fn each_command_has_one_to_three_examples_which_it_takes() {
        let cli = cli();
        let names: Vec<&str> = cli.get_subcommands().map(Command::get_name).collect();
        for name in names {
            let count = examples(name).count();
            assert!((1..=3).contains(&count), "{name}: {count}");
            for words in examples(name).flat_map(command_lines) {
                let parsed = cli.clone().try_get_matches_from(&words);
                assert!(parsed.is_ok(), "{words:?}: {}", parsed.unwrap_err());
            }
        }
    }

    #[cfg(all(
        feature = "lab",
        feature = "audit",
        feature = "manual",
        feature = "monitor",
        feature = "openwrt",
        feature = "policy",
        feature = "postquantum",
        feature = "pptp",
        feature = "relay",
        feature = "speed"
    ))]
    #[test]
    fn each_example_belongs_to_a_command() {
        let cli = cli();
        let known = |line: &str| cli.find_subcommand(line.split_whitespace().nth(1).unwrap());
        let lost: Vec<_> = EXAMPLES.lines().filter(|it| known(it).is_none()).collect();
        assert!(lost.is_empty(), "{lost:?}");
    }

    #[test]
    fn the_help_shows_each_command_in_its_group_but_internal_ones() {
        let mut cli = cli();
        let help = cli.render_help().to_string();
        for (entry, command) in ENTRIES.iter().zip(cli.get_subcommands()) {
            let name = command.get_name();
            let begins = format!("  {name} ");
            let begins_with_alias = format!("  {name}, ");
            let is_shown = help
                .lines()
                .any(|it| it.starts_with(&begins) || it.starts_with(&begins_with_alias));
            assert_eq!(is_shown, entry.0 != Internal, "{name}: {help}");
        }
        let at = |text: &str| help.find(text).unwrap();
        assert!(
            at("Every day:") < at("  up, start ") && at("  up, start ") < at("Devices of the LAN:")
        );
        assert!(at("Devices of the LAN:") < at("  guard "));
    }
}
