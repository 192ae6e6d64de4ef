//! `millrace server`: makes a server at home, its keys, addresses and file (`init`), changes what it says to clients
//! (`set`), and renews what ends (`renew`).

mod disguise;
mod openvpn;
pub(crate) mod place;
mod plan;
pub(crate) mod renew;
mod set;
mod surroundings;

pub(crate) use self::openvpn::{netmask, quoted};

use crate::Outcome;
use crate::arguments::{self, list, option, text, values};
use crate::peer;
use crate::profile::DIRECTORY;
use clap::{ArgMatches, Command, value_parser};
use config::clients::is_name;
use config::free;
use config::home::{HomeServer, Masquerading};
use config::types::{AddressError, AllowedIp, Endpoint, Host as EndpointHost, is_ifname};
use disguise::Disguise;
use netio::netlink::NetlinkError;
use place::{PlaceError, Waits};
use plan::Plan;
use std::net::{IpAddr, Ipv6Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use surroundings::Host;
use thiserror::Error;

/// The default name of a server.
pub(crate) const NAME: &str = "home";

/// Why a network at home is refused that has all addresses.
const ALL_ADDRESSES: &str = "this range covers all addresses and is not a network at home";

/// The command-line definition of `server`.
pub(crate) fn command() -> Command {
    let init = Command::new("init")
        .about("Make the keys, addresses and file of a server; nothing is started")
        .arg(
            option("protocol", "PROTOCOL", "wireguard or openvpn")
                .value_parser(["wireguard", "openvpn"])
                .default_value("wireguard"),
        )
        .arg(option("name", "NAME", "Name of the file and of the interface").default_value(NAME))
        .arg(option(
            "endpoint",
            "HOST[:PORT]",
            "Public name or address for clients [default: the uplink's address]",
        ))
        .arg(
            option(
                "port",
                "PORT",
                "UDP port to listen on [default: 51820; OpenVPN 1194]",
            )
            .value_parser(value_parser!(u16).range(1..)),
        )
        .arg(option(
            "subnet",
            "PREFIX",
            "IPv4 network of the clients [default: a free one]",
        ))
        .arg(option(
            "subnet6",
            "PREFIX",
            "IPv6 network of the clients, or `none` [default: a free one]",
        ))
        .arg(list(
            "lan",
            "PREFIX",
            "A network at home; may be repeated [default: those found on this host]",
        ))
        .arg(list(
            "dns",
            "ADDRESS",
            "Name server for the clients; may be repeated",
        ))
        .arg(
            option(
                "masquerade",
                "WHAT",
                "Packets to masquerade with this host's address: yes (all), internet or no",
            )
            .value_parser(Masquerading::ALL.map(Masquerading::as_str))
            .default_value(Masquerading::Yes.as_str()),
        )
        .arg(arguments::path("to", "DIRECTORY", "Directory for the file").default_value(DIRECTORY));
    let init = Disguise::arguments(init);
    Command::new("server")
        .about("Set up a server at home or at an office, change and renew it")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(init)
        .subcommand(set::command())
        .subcommand(renew::command())
}

/// Why the server cannot be made.
#[derive(Debug, Error)]
pub(crate) enum InitError {
    #[error("{0:?} is not a valid interface name; use 1 to 15 letters, digits, `-`, `_` and `.`")]
    Name(String),
    #[error("{}: already exists; choose another --name, or remove it", .0.display())]
    Exists(PathBuf),
    #[error("--{option} {value}: {why}")]
    Value {
        option: &'static str,
        value: String,
        why: String,
    },
    #[error(
        "this host has no default route, so its public address is unknown; give --endpoint HOST"
    )]
    NoLine,
    #[error("no private network of this size is free; choose one with --subnet")]
    NoSubnet,
    #[error("UDP port {0} is in use; choose another with --port")]
    Port(u16),
    #[error("--amneziawg is for WireGuard servers; leave out --protocol openvpn, or --amneziawg")]
    Disguise,
    #[error(transparent)]
    Host(#[from] NetlinkError),
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error(transparent)]
    Authority(#[from] service::openvpn::authority::AuthorityError),
    #[error(transparent)]
    Key(#[from] service::openvpn::authority::KeyFileError),
}

#[cfg(any(feature = "monitor", feature = "openwrt"))]
impl InitError {
    /// The message for a page, which has fields instead of options.
    pub(crate) fn on_page(&self) -> String {
        match self {
            Self::Exists(path) => {
                format!("{} already exists; choose another name", path.display())
            }
            Self::Value { value, why, .. } => format!("{value}: {why}"),
            Self::NoLine => {
                "this host has no default route; give the address at which clients reach it"
                    .to_owned()
            }
            Self::NoSubnet => {
                "no private network is free for clients; choose one on the shell, with `millrace server init`"
                    .to_owned()
            }
            Self::Port(port) => format!(
                "UDP port {port} is in use; end the program that uses it, or choose another port on the shell, with \
                 `millrace server init`"
            ),
            other => other.to_string(),
        }
    }
}

/// The user's choices; the program finds the rest.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) openvpn: bool,
    pub(crate) name: Option<String>,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) port: Option<u16>,
    pub(crate) subnet: Option<String>,
    /// The IPv6 network; `none` for no IPv6.
    pub(crate) subnet6: Option<String>,
    pub(crate) endpoint: Option<String>,
    pub(crate) lan: Vec<String>,
    pub(crate) dns: Vec<String>,
    pub(crate) masquerade: Masquerading,
    /// Drawn values of AmneziaWG.
    pub(crate) disguise: Option<Disguise>,
}

impl Wanted {
    fn new(matches: &ArgMatches) -> Self {
        let word = |name| text(matches, name).map(str::to_owned);
        let words = |name| values(matches, name).unwrap_or_default();
        let masquerade = text(matches, "masquerade");
        let mut all = Masquerading::ALL.into_iter();
        let masquerade = all.find(|it| Some(it.as_str()) == masquerade);
        Self {
            openvpn: text(matches, "protocol") == Some("openvpn"),
            name: word("name"),
            directory: arguments::file(matches, "to").map(Path::to_owned),
            port: matches.get_one::<u16>("port").copied(),
            subnet: word("subnet"),
            subnet6: word("subnet6"),
            endpoint: word("endpoint"),
            lan: words("lan"),
            dns: words("dns"),
            masquerade: masquerade.unwrap_or_default(),
            disguise: Disguise::of(matches),
        }
    }
}

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> Outcome {
    let matches = match matches.subcommand() {
        Some(("init", matches)) => matches,
        Some(("set", matches)) => return set::run(matches),
        Some((_, matches)) => return renew::run(matches),
        None => return Ok(ExitCode::from(2)),
    };
    host::terminal::say(plan(&Wanted::new(matches))?.make(Waits::Long)?);
    Ok(ExitCode::SUCCESS)
}

/// Inspects this host, and chooses what the user left open.
pub(crate) fn plan(wanted: &Wanted) -> Result<Plan<'_>, InitError> {
    let name = wanted.name.as_deref().unwrap_or(NAME);
    if !is_ifname(name) || !is_name(name) {
        return Err(InitError::Name(name.to_owned()));
    }
    if wanted.openvpn && wanted.disguise.is_some() {
        return Err(InitError::Disguise);
    }
    let directory = wanted.directory.as_deref();
    let directory = directory.unwrap_or_else(|| Path::new(DIRECTORY));
    for end in ["conf", "ovpn", "d"] {
        let path = directory.join(format!("{name}.{end}"));
        if path.symlink_metadata().is_ok() {
            return Err(InitError::Exists(path));
        }
    }
    let usual = if wanted.openvpn { 1194 } else { 51820 };
    let port = wanted.port.unwrap_or(usual);
    let host = Host::look()?;
    if !is_port_free(port) {
        return Err(InitError::Port(port));
    }
    let others = others(directory);
    let subnets = [&wanted.subnet, &wanted.subnet6].map(Option::as_deref);
    Ok(Plan {
        name,
        directory,
        openvpn: wanted.openvpn,
        port,
        networks: networks(subnets, &host, &others)?,
        home: home(wanted, port, &host)?,
        disguise: wanted.disguise,
    })
}

/// Parses the address in an option.
fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(
    option: &'static str,
    value: &str,
) -> Result<T, InitError> {
    value.parse().map_err(|error: T::Err| InitError::Value {
        option,
        value: value.to_owned(),
        why: error.to_string(),
    })
}

/// The networks of the other servers in the directory, each with the server's file. They need not be up.
fn others(directory: &Path) -> Vec<(PathBuf, AllowedIp)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let servers = entries.map(|it| it.path()).filter(|it| peer::is_home(it));
    let networks = |path: PathBuf| {
        let networks = peer::tunnel_networks(&path).unwrap_or_else(|error| {
            host::terminal::note(format_args!(
                "the networks of a server are unknown: {error}"
            ));
            Vec::new()
        });
        let networks = networks.into_iter().filter(|it| it.prefix() > 1);
        networks.map(move |it| (path.clone(), it))
    };
    servers.flat_map(networks).collect()
}

fn networks(
    [subnet, subnet6]: [Option<&str>; 2],
    host: &Host,
    others: &[(PathBuf, AllowedIp)],
) -> Result<Vec<AllowedIp>, InitError> {
    let given = |option, value: &str, six: bool| {
        let network: AllowedIp = parsed(option, value)?;
        let wrong = |why: String| InitError::Value {
            option,
            value: value.to_owned(),
            why,
        };
        // At least the server and two clients must fit; OpenVPN accepts no IPv6 prefix longer than /112.
        let (least, most) = if six { (48, 112) } else { (8, 29) };
        if network.addr().is_ipv6() != six || !(least..=most).contains(&network.prefix()) {
            let family = if six { "IPv6" } else { "IPv4" };
            return Err(wrong(format!("must be {family} of {least} to {most} bits")));
        }
        if let Some((path, other)) = others.iter().find(|(_, it)| free::overlap(*it, network)) {
            return Err(wrong(format!(
                "overlaps {other}, a network of the server {}; choose another network",
                path.display()
            )));
        }
        let mut taken = host.taken.iter().filter(|it| !it.is_default());
        match taken.find(|it| free::overlap(**it, network)) {
            Some(other) => Err(wrong(format!("{other} is in use on this host"))),
            None => Ok(network),
        }
    };
    let mut random = || {
        let mut bytes = [0; 8];
        crypto::random(&mut bytes);
        u64::from_be_bytes(bytes)
    };
    let others = others.iter().map(|(_, it)| *it);
    let taken: Vec<AllowedIp> = host.taken.iter().copied().chain(others).collect();
    let v4 = match subnet {
        Some(value) => given("subnet", value, false)?,
        None => free::free_v4(&taken, &mut random).ok_or(InitError::NoSubnet)?,
    };
    let v6 = match subnet6 {
        Some("none") => None,
        Some(value) => Some(given("subnet6", value, true)?),
        None if host.has_ipv6 => free::free_v6(&taken, &mut random),
        None => None,
    };
    Ok([Some(v4), v6].into_iter().flatten().collect())
}

fn home(wanted: &Wanted, port: u16, host: &Host) -> Result<HomeServer, InitError> {
    let endpoint = match &wanted.endpoint {
        Some(value) => endpoint(value, port).map_err(|error| InitError::Value {
            option: "endpoint",
            value: value.clone(),
            why: error.to_string(),
        })?,
        None => Endpoint {
            host: EndpointHost::Ip(host.line.ok_or(InitError::NoLine)?),
            port,
        },
    };
    let lan = wanted.lan.iter().map(|it| parsed("lan", it));
    let lan: Vec<AllowedIp> = lan.collect::<Result<_, _>>()?;
    if let Some(all) = lan.iter().find(|it| it.is_default()) {
        return Err(InitError::Value {
            option: "lan",
            value: all.to_string(),
            why: format!(
                "{ALL_ADDRESSES}; leave the option out, as clients send all traffic to the server by default"
            ),
        });
    }
    let dns = wanted.dns.iter().map(|it| parsed("dns", it));
    let dns: Vec<IpAddr> = dns.collect::<Result<_, _>>()?;
    Ok(HomeServer {
        endpoint: Some(endpoint),
        lan: if lan.is_empty() {
            host.lan.clone()
        } else {
            lan
        },
        dns: if dns.is_empty() {
            host.dns.clone()
        } else {
            dns
        },
        masquerade: wanted.masquerade,
        keepalive: None,
    })
}

/// An endpoint; its port may be missing.
fn endpoint(value: &str, port: u16) -> Result<Endpoint, AddressError> {
    if let Ok(addr) = value.parse::<Ipv6Addr>() {
        return Ok(Endpoint {
            host: EndpointHost::Ip(addr.into()),
            port,
        });
    }
    let bare = value.ends_with(']') || !value.contains(':');
    match bare {
        true => format!("{value}:{port}").parse(),
        false => value.parse(),
    }
}

fn is_port_free(port: u16) -> bool {
    let any = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, port));
    // A host without IPv6 only has the IPv4 socket.
    any.or_else(|_| UdpSocket::bind(("0.0.0.0", port))).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_endpoints_may_be_left_out() {
        for (value, wanted) in [
            ("home.example", "home.example:7"),
            ("home.example:9", "home.example:9"),
            ("192.0.2.1", "192.0.2.1:7"),
            ("2001:db8::1", "[2001:db8::1]:7"),
            ("[2001:db8::1]", "[2001:db8::1]:7"),
            ("[2001:db8::1]:9", "[2001:db8::1]:9"),
        ] {
            assert_eq!(endpoint(value, 7).unwrap().to_string(), wanted);
        }
        for wrong in ["", "a b", "home:0", "1.2.3", "[::1"] {
            assert!(endpoint(wrong, 7).is_err(), "{wrong}");
        }
    }

    #[test]
    fn pages_are_told_of_no_options() {
        let exists = InitError::Exists("/etc/millrace/home.conf".into());
        assert!(exists.to_string().contains("--name"));
        let value = networks([Some("x"), None], &Host::default(), &[]).unwrap_err();
        for error in [
            exists,
            value,
            InitError::NoLine,
            InitError::NoSubnet,
            InitError::Port(1),
        ] {
            let words = error.on_page();
            assert!(!words.contains("--"), "{words}");
        }
    }

    #[test]
    fn networks_that_are_given_are_checked() {
        let host = Host {
            taken: vec![
                "192.168.1.0/24".parse().unwrap(),
                "0.0.0.0/0".parse().unwrap(),
            ],
            has_ipv6: true,
            ..Host::default()
        };
        let networks = |four, six| networks([four, six], &host, &[]);
        let both = networks(Some("10.9.0.0/24"), Some("fd00:9::/64")).unwrap();
        assert_eq!(both.len(), 2);
        assert_eq!(networks(None, Some("none")).unwrap().len(), 1);
        assert_eq!(networks(None, None).unwrap().len(), 2);
        for (four, six, words) in [
            (Some("192.168.0.0/16"), None, "in use"),
            (Some("10.9.0.0/30"), None, "29"),
            (Some("fd00::/64"), None, "IPv4"),
            (None, Some("10.9.0.0/24"), "IPv6"),
            (Some("x"), None, "--subnet x"),
        ] {
            let error = networks(four, six).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
