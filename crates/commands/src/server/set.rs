//! `millrace server set`: changes what the server's file says to clients: its address, the networks at home, and name
//! servers.

use super::{NAME, endpoint, place, place::PlaceError, place::Waits, surroundings};
use crate::Outcome;
use crate::arguments::{self, flag, option};
use crate::peer::{self, Chosen, Directory, PeerError, list_of};
use crate::profile::DIRECTORY;
use clap::{Arg, ArgMatches, Command};
use config::error::ImportError;
use config::home::{self, NETWORKS_MAX};
use config::kind::Kind;
use config::permissions::Permissions;
use config::types::{AllowedIp, Endpoint};
use config::wgquick;
use service::running::name_of;
use std::fmt::Display;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use thiserror::Error;

/// The command-line definition of `server set`.
pub(super) fn command() -> Command {
    Command::new("set")
        .about("Change what clients' files say: the server's address, networks or name servers")
        .arg(option("server", "SERVER", "The server's name or file").default_value(NAME))
        .arg(
            Arg::new("KEY")
                .required(true)
                .value_parser(["endpoint", "lan", "dns", "keepalive"])
                .help(
                    "endpoint: HOST[:PORT]; lan: the networks at home, or none; dns: name servers, or none; \
                     keepalive: seconds between packets of idle clients, or none (WireGuard), in files made from now on",
                ),
        )
        .arg(
            Arg::new("VALUE")
                .required(true)
                .num_args(1..=NETWORKS_MAX)
                .help("The new value; several for lan and dns"),
        )
        .args(peer::options())
        .arg(flag("json", "Print the files' names as one JSON document").requires("to"))
}

/// Why nothing was changed.
#[derive(Debug, Error)]
enum SetError {
    #[error("{key} {value}: {why}")]
    Value {
        key: &'static str,
        value: String,
        why: String,
    },
    #[error(
        "{}: it has no section `#! [Server]`, which would say this to clients; `millrace server init` makes servers with \
         one", .0.display()
    )]
    Bare(PathBuf),
    #[error("{0}; nothing was changed")]
    Undone(PeerError),
    #[error("the change is saved, but no file was made: {0}")]
    Reissue(PeerError),
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error(transparent)]
    Import(#[from] ImportError),
    #[error(transparent)]
    Peer(#[from] PeerError),
}

/// Runs the command.
pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let text = |id| arguments::text(matches, id).unwrap_or_default();
    let path = place::find(text("server"), Path::new(DIRECTORY))?;
    let lock = peer::lock(&path, Waits::Long)?;
    let values = arguments::values(matches, "VALUE").unwrap_or_default();
    let tell_notes = || {
        let reached = reached(&path).ok().filter(|_| text("KEY") == "endpoint");
        let notes = reached.map(notes).unwrap_or_default();
        notes.into_iter().for_each(host::terminal::note);
    };
    if arguments::file(matches, "to").is_some() {
        let directory = Directory::of(matches, &path);
        let left = set_and_reissue(&path, text("KEY"), &values, &directory)?;
        drop(lock);
        tell_notes();
        peer::tell_reissued(&path, &left, &directory, matches.get_flag("json"))?;
        return Ok(ExitCode::SUCCESS);
    }
    set(&path, text("KEY"), &values)?;
    let (key, values) = (text("KEY"), values.join(", "));
    host::terminal::note(format_args!("{}: {key} is now {values}", name_of(&path)));
    tell_notes();
    let outdated = peer::outdated(&path);
    drop(lock);
    // The networks at home also decide what is masqueraded.
    let told = peer::tell(&path, false);
    outdated.into_iter().for_each(host::terminal::note);
    if !told? {
        host::terminal::note(peer::not_up(&path));
    }
    Ok(ExitCode::SUCCESS)
}

/// Changes a key, and makes new files for the clients whose files are outdated then. Without files, nothing changes.
/// Returns clients that were left out.
fn set_and_reissue(
    path: &Path,
    key: &str,
    values: &[String],
    directory: &Directory<'_>,
) -> Result<Vec<String>, SetError> {
    let before = place::read(path)?;
    set(path, key, values)?;
    peer::reissue(path, &Chosen::OUTDATED, directory).map_err(|error| {
        match place::replace(path, &*before) {
            Ok(()) => SetError::Undone(error),
            Err(_) => SetError::Reissue(error),
        }
    })
}

/// Changes a key of the `[Server]` section in a server's file.
fn set(path: &Path, key: &str, values: &[String]) -> Result<(), SetError> {
    let text = place::read(path)?;
    let (key, value) = match key {
        "endpoint" => ("Endpoint", one_endpoint(path, values)?),
        "lan" => ("LAN", lan(path, values)?),
        "keepalive" => ("Keepalive", keepalive(path, values)?),
        _ => ("DNS", dns(path, values)?),
    };
    let changed = home::with_key(&text, key, &value);
    let changed = changed.ok_or_else(|| SetError::Bare(path.to_owned()))?;
    Ok(place::replace(path, &changed)?)
}

/// An endpoint. Without a port, it gets that of the old endpoint.
fn one_endpoint(path: &Path, values: &[String]) -> Result<String, SetError> {
    let wrong = |why: String| SetError::Value {
        key: "endpoint",
        value: values.join(" "),
        why,
    };
    let [value] = values else {
        return Err(wrong("give one address".to_owned()));
    };
    let port = reached(path)?.0.map(|it| it.port);
    // A port of 0 is refused, with words about the port.
    let endpoint = endpoint(value, port.unwrap_or_default());
    Ok(endpoint.map_err(|it| wrong(it.to_string()))?.to_string())
}

/// The endpoint that a server's file tells clients, and the protocol and port at which the server listens.
type Reached = (Option<Endpoint>, Option<(&'static str, u16)>);

fn reached(path: &Path) -> Result<Reached, ImportError> {
    let (home, listens) = match Kind::at(path) {
        Kind::OpenVpn => {
            let config = super::renew::configuration(path)?;
            let listens = config.connections.first().map(|it| {
                let protocol = if it.protocol.transport.is_tcp() {
                    "TCP"
                } else {
                    "UDP"
                };
                (protocol, it.local.port)
            });
            (config.network.home, listens)
        }
        _ => {
            let (tunnel, _) = wgquick::read(path, Permissions::ALL)?.into_tunnel()?;
            let port = tunnel.interface.listen_port;
            (tunnel.home, port.map(|port| ("UDP", port)))
        }
    };
    Ok((home.and_then(|it| it.endpoint), listens))
}

/// Notes on an endpoint that clients outside do not reach, or only if a router in front forwards its port.
fn notes((endpoint, listens): Reached) -> Vec<String> {
    let Some(endpoint) = endpoint else {
        return Vec::new();
    };
    let ip = endpoint.socket_addr().map(|it| it.ip());
    let inner = ip.filter(|it| it.is_unspecified() || surroundings::is_private(*it));
    let inner = inner.map(|ip| {
        format!("WARNING: clients outside do not reach {ip}; give the public name or address of the router in front")
    });
    let other = listens.filter(|it| it.1 != endpoint.port);
    let other = other.map(|(protocol, port)| {
        format!(
            "the server listens at {protocol} port {port}: the router in front must forward {protocol} port {} to it",
            endpoint.port
        )
    });
    inner.into_iter().chain(other).collect()
}

/// Seconds between keepalive packets.
fn keepalive(path: &Path, values: &[String]) -> Result<String, SetError> {
    let wrong = |why: &str| SetError::Value {
        key: "keepalive",
        value: values.join(" "),
        why: why.to_owned(),
    };
    if Kind::at(path) == Kind::OpenVpn {
        return Err(wrong(
            "an OpenVPN server gives its clients the line `keepalive` of its file; change that line, and restart the \
             server",
        ));
    }
    let [value] = values else {
        return Err(wrong("give one number of seconds, or none"));
    };
    let seconds = peer::seconds(value);
    let seconds =
        seconds.ok_or_else(|| wrong("give a number of seconds from 1 to 65535, or none"))?;
    Ok(match seconds {
        0 => "off".to_owned(),
        seconds => seconds.to_string(),
    })
}

/// Networks of the office, which no branch and not the tunnel may share.
fn lan(path: &Path, values: &[String]) -> Result<String, SetError> {
    let networks = list::<AllowedIp>("LAN", values)?;
    let wrong = |value: String, why: String| SetError::Value {
        key: "LAN",
        value,
        why,
    };
    if let Some(all) = networks.iter().find(|it| it.is_default()) {
        return Err(wrong(all.to_string(), super::ALL_ADDRESSES.to_owned()));
    }
    peer::check_lan(path, &networks).map_err(|error| match error {
        PeerError::Behind { value, why } => wrong(value, why),
        other => other.into(),
    })?;
    Ok(list_of(&networks))
}

/// Name servers. None may be in a branch, nor a client; the server's own address in the tunnel may be one.
fn dns(path: &Path, values: &[String]) -> Result<String, SetError> {
    let servers = list::<IpAddr>("DNS", values)?;
    peer::check_dns(path, &servers).map_err(|error| match error {
        PeerError::Behind { value, why } => SetError::Value {
            key: "DNS",
            value,
            why,
        },
        other => other.into(),
    })?;
    Ok(list_of(&servers))
}

/// Values of a list.
fn list<T: FromStr<Err: Display>>(
    key: &'static str,
    values: &[String],
) -> Result<Vec<T>, SetError> {
    if values == ["none"] {
        return Ok(Vec::new());
    }
    let one = |value: &String| {
        value.parse().map_err(|why: T::Err| SetError::Value {
            key,
            value: value.clone(),
            why: why.to_string(),
        })
    };
    values.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFICE: &str = "[Interface]\nPrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\nAddress = 10.7.0.1/24\nListenPort = 7\n#! [Server]\n\
        #! Endpoint = office.example:77\n#! LAN = 192.168.1.0/24\n\n[Peer]\n#! Name = store-7\n\
        PublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\nAllowedIPs = 10.7.0.2/32, 192.168.7.0/24\n";

    fn changed(key: &str, values: &[&str]) -> Result<String, SetError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("office.conf");
        std::fs::write(&path, OFFICE).unwrap();
        let values: Vec<String> = values.iter().map(|it| (*it).to_owned()).collect();
        set(&path, key, &values)?;
        Ok(std::fs::read_to_string(path).unwrap())
    }

    #[test]
    fn without_the_clients_files_nothing_changes() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let (path, to) = (at("office.conf"), at("new"));
        let record = "[Peer]\n#! File = 0000000000000001 lan\n";
        let text = OFFICE.replace("[Peer]\n", record);
        std::fs::write(&path, &text).unwrap();
        let command = Command::new("set").args(peer::options());
        let words = ["set", "--to", to.to_str().unwrap()];
        let matches = command.try_get_matches_from(words).unwrap();
        let files = Directory::of(&matches, &path);
        let move_to = |host: &str| {
            let moved = set_and_reissue(&path, "endpoint", &[host.to_owned()], &files);
            moved.map_err(|it| it.to_string())
        };
        std::fs::create_dir(&to).unwrap();
        std::fs::write(to.join("store-7.conf"), "").unwrap();
        let words = move_to("new.example").unwrap_err();
        assert!(
            words.contains("store-7.conf: already exists")
                && words.ends_with("nothing was changed"),
            "{words}"
        );
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        std::fs::remove_file(to.join("store-7.conf")).unwrap();
        assert_eq!(move_to("new.example"), Ok(Vec::new()));
        let file = std::fs::read_to_string(to.join("store-7.conf")).unwrap();
        assert!(file.contains("new.example:77"), "{file}");
    }

    #[test]
    fn an_endpoint_that_clients_do_not_reach_as_it_is_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("office.conf");
        let forward = "the router in front must forward UDP port 77 to it";
        for (host, told) in [
            ("new.example:7", &[][..]),
            ("203.0.113.7:7", &[]),
            ("new.example", &[forward]),
            ("127.0.0.1:7", &["do not reach 127.0.0.1;"]),
            ("0.0.0.0:7", &["do not reach 0.0.0.0;"]),
            ("169.254.1.1:7", &["do not reach 169.254.1.1;"]),
            ("[::1]:7", &["do not reach ::1;"]),
            ("[fe80::1]:77", &["do not reach fe80::1;", forward]),
            ("192.168.1.1:77", &["do not reach 192.168.1.1;", forward]),
        ] {
            std::fs::write(&path, OFFICE).unwrap();
            set(&path, "endpoint", &[host.to_owned()]).unwrap();
            let notes = notes(reached(&path).unwrap());
            assert_eq!(notes.len(), told.len(), "{host}: {notes:?}");
            let mut both = notes.iter().zip(told);
            assert!(
                both.all(|(note, told)| note.contains(told)),
                "{host}: {notes:?}"
            );
        }
    }

    #[test]
    fn one_line_of_the_server_s_file_changes() {
        let lan = OFFICE.replace("192.168.1.0/24", "192.168.2.0/24, fd00::/64");
        let dns = OFFICE.replace("[Server]\n", "[Server]\n#! DNS = 192.168.1.1\n");
        let keepalive =
            |it: &str| OFFICE.replace("[Server]\n", &format!("[Server]\n#! Keepalive = {it}\n"));
        let moved = |to: &str| OFFICE.replace("office.example:77", to);
        for (key, values, wanted) in [
            ("endpoint", &["new.example"][..], moved("new.example:77")),
            ("endpoint", &["[2001:db8::1]:8"], moved("[2001:db8::1]:8")),
            ("lan", &["192.168.2.0/24", "fd00::/64"], lan),
            ("dns", &["192.168.1.1"], dns),
            ("dns", &["none"], OFFICE.to_owned()),
            // The server's own address in the tunnel.
            (
                "dns",
                &["10.7.0.1"],
                OFFICE.replace("[Server]\n", "[Server]\n#! DNS = 10.7.0.1\n"),
            ),
            (
                "lan",
                &["none"],
                OFFICE.replace("#! LAN = 192.168.1.0/24\n", ""),
            ),
            ("keepalive", &["10"], keepalive("10")),
            ("keepalive", &["none"], keepalive("off")),
        ] {
            assert_eq!(changed(key, values).unwrap(), wanted);
        }
        for (key, values) in [
            ("endpoint", &["a b"][..]),
            ("endpoint", &["a", "b"]),
            ("endpoint", &["new.example:0"]),
            ("lan", &["192.168.1.0/24", "x"]),
            ("lan", &["0.0.0.0/0"]),
            ("lan", &["::/0"]),
            ("lan", &["10.7.0.128/25"]),
            ("lan", &["192.168.2.0/24", "192.168.0.0/16"]),
            ("dns", &["office.example"]),
            ("dns", &["192.168.1.1", "none"]),
            ("dns", &["192.168.1.1", "192.168.7.53"]),
            ("dns", &["10.7.0.2"]),
            ("dns", &["10.7.0.53"]),
            ("keepalive", &["0"]),
            ("keepalive", &["65536"]),
            ("keepalive", &["10", "20"]),
        ] {
            let words = changed(key, values).unwrap_err().to_string();
            assert!(words.to_lowercase().starts_with(key), "{words}");
        }
        let words = changed("lan", &["192.168.7.0/25"]).unwrap_err().to_string();
        assert!(
            words.starts_with("LAN 192.168.7.0/25: overlaps 192.168.7.0/24, behind store-7; "),
            "{words}"
        );
        assert!(words.contains("/office.conf"), "{words}");
        let words = changed("dns", &["192.168.7.53"]).unwrap_err().to_string();
        assert!(
            words.starts_with("DNS 192.168.7.53: is in 192.168.7.0/24, behind store-7, "),
            "{words}"
        );
    }
}
