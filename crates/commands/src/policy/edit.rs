//! `millrace policy add`, `remove` and `list`: entries of the settings file.

use super::rules::{self, Wanted};
use super::{file, file_argument, now};
use crate::Outcome;
use crate::arguments::{self, flag, list, option};
use crate::entries::{self, EntriesError, has_systemd, is_openwrt};
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
    let planned = rules::plan(&wanted, path)?;
    if matches.get_flag("show") {
        host::terminal::text(planned.shown);
        return Ok(ExitCode::SUCCESS);
    }
    planned.write(path)?;
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
    let entries = Policy::from_toml(&tables::text(path)?, path)?.entries;
    let list = entries::List {
        path,
        name: "entry",
        read: |text, path| Ok(rules::nameless(Policy::from_toml(text, path)?.entries)),
    };
    let place = entries.iter().position(|it| it.name == name);
    match place {
        // The settings need an entry: without one, the policy would go back to the last valid settings.
        Some(_) if entries.len() == 1 => Err(EntriesError::Last {
            path: path.to_owned(),
            name: config::shown(name),
        }),
        Some(place) => list.remove(place + 1).map(|_| ()),
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
    let command = match (is_openwrt(), has_systemd()) {
        (true, _) => "service millrace-policy enable && service millrace-policy start",
        (_, true) => "systemctl enable --now millrace-policy",
        _ => "millrace policy on",
    };
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

    /// What `add --show` of these words prints, and the file if they are carried out.
    fn add_to(path: &Path, words: &str) -> Result<String, String> {
        let words = ["policy", "add"].into_iter().chain(words.split(' '));
        let matches = crate::policy::command().try_get_matches_from(words);
        let matches = matches.map_err(|error| error.to_string())?;
        let (_, matches) = matches.subcommand().unwrap();
        let planned = rules::plan(&wanted(matches), path)?;
        planned.write(path)?;
        Ok(planned.shown)
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
                "# Before entry br-lan, which would decide first:\n[[entry]]\nname = \"console\"\n\
                 who = [\"console\", \"laptop\"]\nway = \"block\"\n",
            ),
            (
                "--to bank.example --around --lan br-guest",
                "# Before entry tv, which would decide first:\nlan = [\"br-lan\", \"br-guest\"]\n[[entry]]\n\
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
                "phone: phone to everywhere: around tunnels",
                "console: console, laptop to everywhere: blocked",
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
