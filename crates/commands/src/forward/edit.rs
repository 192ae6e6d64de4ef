//! `millrace forward add`, `remove` and `list`: entries of the settings file.

use super::{DEFAULT_PATH, file, file_argument};
use crate::Outcome;
use crate::arguments::{self, list, option};
use crate::entries::{self, List, Service};
use clap::{Arg, ArgMatches, Command};
use config::forward::{FORWARDS_MAX, Forward};
use config::settings::tables::{quoted, quoted_list};
use netio::netlink::Netlink;
use std::path::Path;
use std::process::ExitCode;

/// The service that reads the list.
const SERVICE: Service = Service {
    name: "forward",
    path: DEFAULT_PATH,
    again: "restart",
};

/// The command-line definitions.
pub(super) fn commands() -> [Command; 3] {
    let add = Command::new("add")
        .about("Forward ports of a tunnel's provider to a device")
        .arg(
            Arg::new("TUNNEL")
                .required(true)
                .help("The tunnel's device, such as mr-us"),
        )
        .arg(
            Arg::new("DEVICE")
                .required(true)
                .help("IPv4 address, or hardware address or name of a lease"),
        )
        .arg(Arg::new("PORT").num_args(0..=FORWARDS_MAX).help(
            "Ports of the device, or `any`, for one that the provider chooses [default: any]",
        ))
        .arg(
            list("protocol", "PROTOCOL", "udp or tcp [default: both]").value_parser(["udp", "tcp"]),
        )
        .arg(option(
            "gateway",
            "ADDRESS",
            "The provider's gateway [default: the tunnel's address ending in 1]",
        ))
        .arg(file_argument());
    let remove = entries::removal("entry").arg(file_argument());
    let list = Command::new("list")
        .about("List the entries of the settings; `status` shows the open ports")
        .arg(file_argument());
    [add, remove, list]
}

fn list_of(path: &Path) -> List<'_, Forward> {
    List {
        path,
        name: "forward",
        read: config::forward::listed,
    }
}

/// Adds an entry for each port.
pub(super) fn add(matches: &ArgMatches) -> Outcome {
    let path = file(matches);
    let tables = tables(matches);
    let before = list_of(path).add(&tables)?;
    let tunnel = arguments::text(matches, "TUNNEL").unwrap_or_default();
    if !Netlink::open().is_ok_and(|mut it| it.index_of(tunnel).is_ok()) {
        host::terminal::note(format_args!(
            "there is no device {tunnel} now: its ports are forwarded once that tunnel is up"
        ));
    }
    SERVICE.tell(path, before, before + tables.len());
    Ok(ExitCode::SUCCESS)
}

/// The entries of the command line.
fn tables(matches: &ArgMatches) -> Vec<String> {
    let text = |id| arguments::text(matches, id).map(quoted);
    let lines = |key: &str, value: Option<String>| {
        value
            .map(|it| format!("{key} = {it}\n"))
            .unwrap_or_default()
    };
    let protocols = arguments::values::<String>(matches, "protocol");
    let rest = lines("protocols", protocols.map(|it| quoted_list(&it)))
        + &lines("gateway", text("gateway"));
    let head = lines("through", text("TUNNEL")) + &lines("to", text("DEVICE"));
    let ports =
        arguments::values::<String>(matches, "PORT").unwrap_or_else(|| vec!["any".to_owned()]);
    let port = |it: &String| match it.parse::<u32>() {
        Ok(number) => number.to_string(),
        Err(_) => quoted(it),
    };
    let table = |it: &String| format!("[[forward]]\n{head}port = {}\n{rest}", port(it));
    ports.iter().map(table).collect()
}

/// Removes an entry.
pub(super) fn remove(matches: &ArgMatches) -> Outcome {
    let path = file(matches);
    let left = list_of(path).remove(entries::number(matches))?;
    SERVICE.tell(path, left + 1, left);
    Ok(ExitCode::SUCCESS)
}

/// Lists the entries.
pub(super) fn print(matches: &ArgMatches) -> Outcome {
    let forwards = list_of(file(matches)).entries()?;
    entries::print(file(matches), forwards.iter().map(line));
    Ok(ExitCode::SUCCESS)
}

/// An entry in words.
fn line(it: &Forward) -> String {
    let port = it
        .port
        .map_or_else(|| "any port".to_owned(), |port| format!("port {port}"));
    let protocols: Vec<&str> = it.protocols.iter().map(|it| it.name()).collect();
    let gateway = it.gateway.map(|it| format!(", gateway {it}"));
    format!(
        "{} to {}: {port} ({}){}",
        it.through,
        it.to,
        protocols.join(", "),
        gateway.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn add_to(path: &Path, words: &str) -> Result<usize, String> {
        let words = ["forward", "add"].into_iter().chain(words.split(' '));
        let matches = crate::forward::command().try_get_matches_from(words);
        let matches = matches.map_err(|error| error.to_string())?;
        let (_, matches) = matches.subcommand().unwrap();
        list_of(path)
            .add(&tables(matches))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn ports_are_added_as_they_are_listed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("forward.toml");
        add_to(&path, "mr-us 192.168.1.20").unwrap();
        add_to(
            &path,
            "mr-us console 80 443 --protocol tcp --gateway 10.2.0.1",
        )
        .unwrap();
        let lines: Vec<String> = list_of(&path).entries().unwrap().iter().map(line).collect();
        assert_eq!(
            lines,
            [
                "mr-us to 192.168.1.20: any port (udp, tcp)",
                "mr-us to console: port 80 (tcp), gateway 10.2.0.1",
                "mr-us to console: port 443 (tcp), gateway 10.2.0.1",
            ]
        );
        let text = fs::read_to_string(&path).unwrap();
        for (words, why) in [
            ("mr-us", "DEVICE"),
            ("lo pc", "through cannot be"),
            ("mr-us a/b", "to cannot be"),
            ("mr-us pc 0", "port cannot be 0"),
            ("mr-us pc 65536", "port cannot be 65536"),
            ("mr-us pc some", "port cannot be"),
            ("mr-us pc 80", "has the same port"),
            ("mr-nl pc 1 2 3 4 5 6", "more than 8 forwards"),
            ("mr-us pc --protocol icmp", "icmp"),
            ("mr-us pc --gateway x", "gateway cannot be"),
        ] {
            let error = add_to(&path, words).unwrap_err();
            assert!(error.contains(why), "{words}: {error}");
            // The line is not one of the file.
            assert!(!error.contains(".toml:"), "{words}: {error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }
}
