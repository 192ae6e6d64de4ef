//! `millrace policy add`, `remove` and `list`: entries of the settings file.

use super::rules::{self, Wanted};
use super::{file, file_argument, now};
use crate::Outcome;
use crate::arguments::{self, flag, list, option};
use crate::entries::{self, EntriesError};
use clap::{Arg, ArgGroup, ArgMatches, Command};
use config::policy::{DEFAULT_PATH, Down, Entry, Policy, Way};
use config::settings::tables;
use netio::netlink::Netlink;
use std::path::Path;
use std::process::ExitCode;

/// The usual device of a router's LAN.
const LAN: &str = "br-lan";

/// The command-line definitions.
pub(super) fn commands() -> [Command; 3] {
    let add = Command::new("add")
        .about("Add an entry, where it takes effect; at once if the policy is on")
        .override_usage("millrace policy add [DEVICE]... <--through TUNNEL|--around|--block>")
        .arg(
            Arg::new("DEVICE")
                .num_args(0..)
                .required_unless_present("to")
                .help(
                    "Senders: hardware or IP address, network, name of a lease, device of the LAN",
                ),
        )
        .arg(option(
            "through",
            "TUNNEL",
            "The device of a tunnel, such as mr-away",
        ))
        .arg(flag("around", "Send the packets past all tunnels"))
        .arg(flag("block", "Refuse the packets"))
        .group(
            ArgGroup::new("way")
                .args(["through", "around", "block"])
                .required(true),
        )
        .arg(list(
            "to",
            "TARGET",
            "Only to this address, network or domain; may be repeated",
        ))
        .arg(list(
            "dns",
            "ADDRESS",
            "A name server behind the tunnel, for all lookups; may be repeated",
        ))
        .arg(option("name", "NAME", "The entry's name in reports"))
        .arg(option(
            "lan",
            "DEVICE",
            "Device of the LAN [default: that of the file, or br-lan]",
        ))
        .arg(flag(
            "masquerade",
            "Give packets the router's address in tunnels, as providers need; a new file has it",
        ))
        .arg(flag("show", "Print the entry, but change nothing"))
        .arg(file_argument());
    let remove = Command::new("remove")
        .about("Remove an entry, at once if the policy is on")
        .arg(
            Arg::new("NAME")
                .required(true)
                .help("The entry's name, as `list` shows it"),
        )
        .arg(file_argument());
    let list = Command::new("list")
        .about("List the entries of the settings, in the order in which they decide")
        .arg(file_argument());
    [add, remove, list]
}

/// Adds an entry.
pub(super) fn add(matches: &ArgMatches) -> Outcome {
    let path = file(matches);
    let mut wanted = wanted(matches);
    let is_first = Policy::from_toml(&tables::text(path)?, path)?
        .lan
        .is_empty();
    if wanted.lan.is_none() && is_first && is_device(LAN) {
        wanted.lan = Some(LAN.to_owned());
    }
    if matches.get_flag("show") {
        host::terminal::text(rules::plan(&wanted, path)?.shown);
        return Ok(ExitCode::SUCCESS);
    }
    let added = rules::add(&wanted, path)?;
    added.notes.iter().for_each(host::terminal::note);
    if !wanted.through.is_empty() && !is_device(&wanted.through) {
        host::terminal::note(format_args!(
            "there is no device {} now: the packets are refused until that tunnel is up",
            wanted.through
        ));
    }
    apply(path)
}

/// The entry of the command line.
fn wanted(matches: &ArgMatches) -> Wanted {
    let text = |id| arguments::text(matches, id).unwrap_or_default().to_owned();
    let words = |id| arguments::values::<String>(matches, id).unwrap_or_default();
    let (who, to) = (words("DEVICE"), words("to"));
    let first = who.first().or_else(|| to.first());
    let name = arguments::text(matches, "name").or_else(|| first.map(String::as_str));
    Wanted {
        name: name.unwrap_or_default().to_owned(),
        through: text("through"),
        way: match (matches.get_flag("around"), matches.get_flag("block")) {
            (true, _) => "around",
            (_, true) => "block",
            _ => "",
        },
        dns: words("dns"),
        lan: arguments::text(matches, "lan").map(str::to_owned),
        sets_keys: true,
        masquerade: matches.get_flag("masquerade"),
        who,
        to,
        ..Wanted::default()
    }
}

/// Removes an entry.
pub(super) fn remove(matches: &ArgMatches) -> Outcome {
    let (path, name) = (
        file(matches),
        arguments::text(matches, "NAME").unwrap_or_default(),
    );
    remove_from(path, name)?;
    apply(path)
}

fn remove_from(path: &Path, name: &str) -> Result<(), EntriesError> {
    let _lock = entries::lock(path)?;
    let text = tables::text(path)?;
    let before = Policy::from_toml(&text, path)?;
    let list = entries::List {
        path,
        name: "entry",
        read: |text, path| Ok(rules::nameless(Policy::from_toml(text, path)?.entries)),
    };
    let place = before.entries.iter().position(|it| it.name == name);
    match place {
        // The settings need an entry: without one, the policy would go back to the last valid settings.
        Some(_) if before.entries.len() == 1 => Err(EntriesError::Last {
            path: path.to_owned(),
            name: config::shown(name),
        }),
        Some(place) => {
            let (left, _) = list.without(place + 1, &text)?;
            let fault = || Policy::from_toml(&left, path).ok()?.fault();
            // Faulty settings may be mended step by step.
            match before.fault().is_none().then(fault).flatten() {
                Some(words) => Err(EntriesError::Fault {
                    path: path.to_owned(),
                    words,
                }),
                None => entries::write(&left, path),
            }
        }
        None => Err(EntriesError::Unknown {
            path: path.to_owned(),
            name: config::shown(name),
        }),
    }
}

/// Lists the entries.
pub(super) fn print(matches: &ArgMatches) -> Outcome {
    let path = file(matches);
    let policy = Policy::from_toml(&tables::text(path)?, path)?;
    if policy.entries.is_empty() {
        host::terminal::note(format_args!("{}: no entries", path.display()));
    }
    let lines = policy.entries.iter().map(|it| line(it) + "\n");
    host::terminal::text(lines.collect::<String>());
    Ok(ExitCode::SUCCESS)
}

/// An entry in words.
fn line(entry: &Entry) -> String {
    let words = |words: Vec<String>, all: &str| match words.is_empty() {
        true => all.to_owned(),
        false => words.join(", "),
    };
    let who = entry.who.iter().map(ToString::to_string).collect();
    let to = entry.to.iter().map(ToString::to_string).collect();
    let way = match &entry.way {
        Way::Through {
            device,
            down: Down::Hold,
        } => format!("through {device}"),
        Way::Through {
            device,
            down: Down::Around,
        } => format!("through {device}, while it is up"),
        Way::Around => "around tunnels".to_owned(),
        Way::Block => "blocked".to_owned(),
    };
    let dns: Vec<String> = entry.dns.iter().map(ToString::to_string).collect();
    let dns = match dns.is_empty() {
        true => String::new(),
        false => format!(", name servers {}", dns.join(", ")),
    };
    let (who, to) = (words(who, "all of the LAN"), words(to, "everywhere"));
    format!("{}: {who} to {to}: {way}{dns}", entry.name)
}

/// Has a policy that is on follow the changed file; otherwise says how to switch it on.
fn apply(path: &Path) -> Outcome {
    if path != Path::new(DEFAULT_PATH) {
        let path = path.display();
        host::terminal::note(format_args!(
            "{path}: changed; `millrace policy on --settings {path}` applies it"
        ));
        return Ok(ExitCode::SUCCESS);
    }
    let report = steer::policy::status(None)?;
    if report.on || report.asked {
        return Ok(now(path)?);
    }
    let command = entries::commands("policy", "start");
    let command = command.unwrap_or_else(|| "millrace policy on".to_owned());
    host::terminal::note(format_args!(
        "{}: changed; the policy is off. To switch it on, run: {command}",
        path.display()
    ));
    Ok(ExitCode::SUCCESS)
}

/// Whether the host has a network device of this name.
fn is_device(name: &str) -> bool {
    Netlink::open().is_ok_and(|mut it| it.index_of(name).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Adds the entry of these words. Returns the text that `add --show` prints.
    fn add_to(path: &Path, words: &str) -> Result<String, String> {
        let words = ["policy", "add"].into_iter().chain(words.split(' '));
        let matches = crate::policy::command().try_get_matches_from(words);
        let matches = matches.map_err(|error| error.to_string())?;
        let (_, matches) = matches.subcommand().unwrap();
        let added = rules::add(&wanted(matches), path);
        added.map(|it| it.shown).map_err(|error| error.to_string())
    }

    fn names(path: &Path) -> Vec<String> {
        let (policy, _) = Policy::read(path).unwrap();
        policy.entries.iter().map(line).collect()
    }

    #[test]
    fn entries_are_added_where_they_take_effect_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("policy.toml");
        for (words, shown) in [
            (
                "02:00:5e:10:00:01 --through mr-us --name tv --lan br-lan --dns 10.8.0.1 --dns fd08::1",
                "lan = [\"br-lan\"]\nmasquerade = true\n\n[[entry]]\nname = \"tv\"\nwho = \"02:00:5e:10:00:01\"\n\
                 through = \"mr-us\"\ndns = [\"10.8.0.1\", \"fd08::1\"]\n",
            ),
            (
                "br-lan --through mr-us",
                "[[entry]]\nname = \"br-lan\"\nwho = \"br-lan\"\nthrough = \"mr-us\"\n",
            ),
            (
                "console laptop --block",
                "# This entry comes before entry br-lan, which would decide first.\n[[entry]]\nname = \"console\"\n\
                 who = [\"console\", \"laptop\"]\nway = \"block\"\n",
            ),
            (
                "--to bank.example --around --lan br-guest",
                "# This entry comes before entry tv, which would decide first.\nlan = [\"br-lan\", \"br-guest\"]\n[[entry]]\n\
                 name = \"bank.example\"\nto = \"bank.example\"\nway = \"around\"\n",
            ),
        ] {
            assert_eq!(add_to(&path, words).unwrap(), shown, "{words}");
        }
        let text = fs::read_to_string(&path).unwrap();
        fs::write(
            &path,
            format!("# mine\n{}", text.replace("masquerade = true", "# none")),
        )
        .unwrap();
        add_to(&path, "phone --around --masquerade").unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            text.starts_with(
                "# mine\nmasquerade = true\nlan = [\"br-lan\", \"br-guest\"]\n# none\n"
            ),
            "{text}"
        );
        assert_eq!(
            names(&path),
            [
                "bank.example: all of the LAN to bank.example: around tunnels",
                "tv: 02:00:5e:10:00:01 to everywhere: through mr-us, name servers 10.8.0.1, fd08::1",
                "console: console, laptop to everywhere: blocked",
                "phone: phone to everywhere: around tunnels",
                "br-lan: br-lan to everywhere: through mr-us",
            ]
        );
        for (words, why) in [
            ("tv2", "--through"),
            ("--through mr-us", "DEVICE"),
            ("tv2 --through mr-us --block", "cannot be used"),
            ("tv2 --through a/b", "through cannot be"),
            ("a/b --block", "who cannot be"),
            ("tv2 --to x..y --block", "to cannot be"),
            ("tv2 --through mr-us --dns x", "dns cannot be"),
            (
                "tv2 --through mr-us --to a.example --dns 10.8.0.1",
                "`dns` is only for",
            ),
            ("tv2 --block --dns 10.8.0.1", "`dns` is only for"),
            ("laptop --block", "decides about laptop already"),
            ("tv2 --block --lan mr-us", "as a tunnel"),
        ] {
            let error = add_to(&path, words).unwrap_err();
            assert!(error.contains(why), "{words}: {error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        let error = remove_from(&path, "tv2").unwrap_err().to_string();
        assert!(error.contains("no entry has the name tv2"), "{error}");
        for name in ["console", "bank.example", "br-lan", "phone"] {
            remove_from(&path, name).unwrap();
        }
        let error = remove_from(&path, "tv").unwrap_err().to_string();
        assert!(error.contains("tv is the only entry"), "{error}");
        assert_eq!(names(&path).len(), 1);
        assert!(fs::read_to_string(&path).unwrap().starts_with("# mine\n"));
    }

    /// Each situation: the entry that is there, the new one, and whether the new one comes first.
    #[test]
    fn the_narrower_of_two_entries_comes_first() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("policy.toml");
        let network = "192.168.1.0/24";
        for (old, new, is_first) in [
            ("192.168.1.5", network, false),
            (network, "192.168.1.5", true),
            ("192.168.2.0/24", network, false),
            ("02:00:5e:10:00:01", network, false),
            ("tv", network, false),
            ("br-lan", network, true),
            (network, "tv", true),
            (network, "br-lan", false),
            ("192.168.1.5 tv", "192.168.0.0/16 192.168.1.6", false),
            ("192.168.1.5 192.168.0.0/16", network, false),
            ("--to 10.0.0.0/8", "--to 10.1.0.0/16", true),
            ("--to 10.1.0.0/16", "--to 10.0.0.0/8", false),
            ("--to 10.0.0.0/8", "tv --to 10.0.0.0/8", true),
            ("tv --to 10.0.0.0/8", "--to 10.0.0.0/8", false),
            ("--to bank.example", "--to pay.bank.example", true),
            ("--to pay.bank.example", "--to bank.example", false),
            ("--to bank.example", "--to notbank.example", false),
            ("--to 0.0.0.0/0", "--to bank.example", true),
            ("--to bank.example", "tv", false),
            ("tv", "--to bank.example", true),
            ("tv", "pc --to bank.example", false),
        ] {
            let _ = fs::remove_file(&path);
            add_to(&path, &format!("{old} --around --lan br-lan --name old")).unwrap();
            add_to(&path, &format!("{new} --through mr-us --name new")).unwrap();
            let is_now = names(&path)[0].starts_with("new: ");
            assert_eq!(is_now, is_first, "{new} after {old}");
        }
        for who in ["", "tv pc "] {
            let _ = fs::remove_file(&path);
            add_to(
                &path,
                &format!("{who}--to a.example --to 10.0.0.1 --around --lan br-lan"),
            )
            .unwrap();
            let again = who.split(' ').rev().collect::<Vec<_>>().join(" ");
            let again = format!("{} --to 10.0.0.1 --to a.example --around", again.trim());
            let error = add_to(&path, again.trim()).unwrap_err();
            assert!(error.contains("already"), "{error}");
        }
    }

    #[test]
    fn notes_about_the_order_name_only_entries_with_the_same_packets() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("policy.toml");
        for words in [
            "192.168.1.5 --lan br-lan --name pc",
            "192.168.9.0/24",
            "br-lan --name lan",
        ] {
            add_to(&path, &format!("{words} --block")).unwrap();
        }
        let words = ["policy", "add", "192.168.1.0/24", "--around"];
        let matches = crate::policy::command()
            .try_get_matches_from(words)
            .unwrap();
        let (_, matches) = matches.subcommand().unwrap();
        assert_eq!(
            rules::add(&wanted(matches), &path).unwrap().notes,
            [
                "Entry pc decides first about 192.168.1.5/32.",
                "This entry comes before entry lan, which would decide first.",
            ]
        );
    }

    #[test]
    fn an_entry_of_one_family_says_which_packets_it_misses() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("policy.toml");
        for (words, is_told) in [
            ("192.168.1.5 --through mr-us", true),
            ("192.168.1.5 --block", true),
            ("192.168.1.0/24 --through mr-us", true),
            ("192.168.1.5 --around", false),
            ("192.168.1.0/24 fd00:1::/64 --block", false),
            ("02:00:5e:10:00:01 --through mr-us", false),
            ("tv --block", false),
            ("br-lan --block", false),
        ] {
            let _ = fs::remove_file(&path);
            let shown = add_to(&path, &format!("{words} --lan br-lan")).unwrap();
            let told = "# This entry does not cover IPv6 packets of 192.168.1.";
            assert_eq!(shown.starts_with(told), is_told, "{words}: {shown}");
        }
    }

    #[test]
    fn no_entry_is_lost_to_another_process() {
        let directory = tempfile::tempdir().unwrap();
        let path = &directory.path().join("policy.toml");
        std::thread::scope(|scope| {
            for it in 0..24 {
                let words = format!("device{it} --block --lan br-lan");
                scope.spawn(move || add_to(path, &words).unwrap());
            }
        });
        assert_eq!(names(path).len(), 24);
        std::thread::scope(|scope| {
            for it in 0..23 {
                scope.spawn(move || remove_from(path, &format!("device{it}")).unwrap());
            }
        });
        assert!(names(path)[0].starts_with("device23: "));
    }

    #[test]
    fn a_removal_does_not_break_sound_settings() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("policy.toml");
        let named = |name: &str| {
            format!("[[entry]]\nname = \"{name}\"\nwho = \"{name}\"\nway = \"block\"\n")
        };
        let text = format!(
            "lan = [\"br-lan\"]\n{}{}[[entry]]\nwho = \"c\"\nway = \"block\"\n",
            named("a"),
            named("2")
        );
        fs::write(&path, &text).unwrap();
        // The third entry has no name; its number would become 2.
        let error = remove_from(&path, "a").unwrap_err().to_string();
        assert!(error.contains("two entries have the name 2"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }

    #[test]
    fn entries_without_a_name_are_removed_by_their_number() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("policy.toml");
        let entry = |who: &str| format!("[[entry]]\nwho = \"{who}\"\nway = \"block\"\n");
        let text = format!(
            "lan = [\"br-lan\"]\n\n{}\n{}\n{}",
            entry("a"),
            entry("b"),
            entry("c")
        );
        fs::write(&path, &text).unwrap();
        add_to(&path, "--to bank.example --around").unwrap();
        assert!(names(&path)[0].starts_with("bank.example: "));
        assert!(names(&path)[1].starts_with("2: a "));
        remove_from(&path, "bank.example").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        remove_from(&path, "2").unwrap();
        let wanted = text.replace(&format!("{}\n", entry("b")), "");
        assert_eq!(fs::read_to_string(&path).unwrap(), wanted);
        for broken in [
            "lan = \n",
            "lan = [\"br-lan\"]\nentry = [{ who = \"a\", way = \"block\" }, { who = \"b\", way = \"block\" }]\n",
        ] {
            fs::write(&path, broken).unwrap();
            assert!(remove_from(&path, "1").is_err());
            assert!(add_to(&path, "c --block").is_err());
            assert_eq!(fs::read_to_string(&path).unwrap(), broken);
        }
    }
}
