//! `millrace leak-test`: finds out through which device new DNS queries and packets leave.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgMatches, Command, value_parser};
use config::guard::Pattern;
use host::terminal::note;
use serde_json::{Value, json};
use thiserror::Error;

mod judge;
mod watch;

use crate::Outcome;
use crate::arguments::{devices, flag, option, parsed, tunnels, values};
use judge::{Devices, From, Kind, Probe, Verdict, verdict};

/// A reserved domain: only its own servers receive queries for names below it.
const DOMAIN: &str = "example.com";

/// Name server if a resolv.conf names none, as in the C library.
const OWN: [IpAddr; 1] = [IpAddr::V4(Ipv4Addr::LOCALHOST)];

/// Maximum number of servers to query, as in the C library.
const SERVERS_MAX: usize = 3;

/// Exit codes: no leak; a leak; no result, or a wrong command line.
const LEAK: u8 = 1;
const UNKNOWN: u8 = 2;

/// The command-line definition of `leak-test`.
pub(crate) fn command() -> Command {
    Command::new("leak-test")
        .about("Test whether DNS queries and packets leave outside the tunnels")
        .long_about(
            "Queries fresh names, sends one IPv4 and one IPv6 packet to unused addresses, and watches through which \
             devices they leave. Any device other than a tunnel is a leak.",
        )
        .arg(parsed(
            option(
                "domain",
                "DOMAIN",
                "Query names below this domain [default: the first of the guard's dns_names, or example.com]",
            ),
            domain,
            "write a domain, such as example.com",
        ))
        .arg(tunnels(
            "A tunnel's device, or mr-* for all that begin with mr- [default: the guard's, or the policy's, or all \
             tunnels]",
        ))
        .arg(devices(
            "lan",
            "A LAN device [default: the guard's, or the policy's]",
        ))
        .arg(
            option(
                "from-lan",
                "SECONDS",
                "Also test a LAN computer: print the commands to type there, and wait this long",
            )
            .value_parser(value_parser!(u64).range(1..=3600)),
        )
        .arg(flag("no-packets", "Test DNS queries only"))
        .arg(flag("no-router", "Test only packets from the LAN").requires("from-lan"))
        .arg(flag("json", "Print a JSON document"))
}

/// A domain that leaves room for a label in front.
fn domain(word: &str) -> Option<String> {
    config::guard::domain(word).filter(|it| it.len() <= 200)
}

#[derive(Debug, Error)]
enum LeakTestError {
    #[error("no LAN device is named; give --lan br-lan, or write guard.toml or policy.toml")]
    NoLan,
    #[error("cannot watch packets: {0}; run this as root")]
    Watch(io::Error),
    #[error(transparent)]
    Netlink(#[from] netio::netlink::NetlinkError),
}

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> Outcome {
    let code = test(matches).unwrap_or_else(|error| {
        log::error!("{error}");
        UNKNOWN
    });
    Ok(ExitCode::from(code))
}

/// Parameters of the leak test.
struct Plan {
    domain: String,
    devices: Devices,
    from_lan: Option<Duration>,
    packets: bool,
    router: bool,
}

fn test(matches: &ArgMatches) -> Result<u8, LeakTestError> {
    let plan = plan(matches)?;
    let capture = netio::capture::Capture::open().map_err(LeakTestError::Watch)?;
    let mut probes = probes(&plan);
    if let Some(time) = plan.from_lan {
        tell(&probes, &plan, time);
    }
    let is_whole = watch::run(&capture, &mut probes, &plan).map_err(LeakTestError::Watch)?;
    let found: Vec<Verdict> = probes
        .iter()
        .map(
            |probe| match verdict(probe, |index| plan.devices.role(index)) {
                leak @ Verdict::Leak(_) => leak,
                _ if !is_whole => Verdict::Unknown("too many packets: some were missed".to_owned()),
                Verdict::Held if !plan.devices.can_leave => {
                    Verdict::Unknown("no network device but the loopback is up".to_owned())
                }
                other => other,
            },
        )
        .collect();
    let code = code(&found);
    if matches.get_flag("json") {
        host::terminal::line(format_args!("{:#}", document(&probes, &found, &plan, code)));
    } else {
        for (probe, verdict) in probes.iter().zip(&found) {
            let words = words(verdict, &plan.devices);
            host::terminal::line(format_args!("{}: {words}", title(probe, &plan.domain)));
        }
        host::terminal::line(match code {
            0 => "no leak",
            LEAK => "LEAK: see above",
            _ if !plan.devices.can_leave => "no test was possible",
            _ => "some tests had no result",
        });
    }
    Ok(code)
}

fn plan(matches: &ArgMatches) -> Result<Plan, LeakTestError> {
    let file = config::guard::Guard::read(config::guard::DEFAULT_PATH.as_ref()).ok();
    let guard = steer::guard::status(file.as_ref()).ok();
    let guard = guard.and_then(|report| report.guard);
    let of_guard = || domain(guard.as_ref()?.dns_names.first()?);
    let domain = matches
        .get_one::<String>("domain")
        .cloned()
        .or_else(of_guard);
    let policy = config::policy::Policy::read(config::policy::DEFAULT_PATH.as_ref());
    let policy = policy.ok().map(|(policy, _)| policy);
    let tunnels = values(matches, "tunnel").or_else(|| match &guard {
        Some(guard) => Some(guarded_tunnels(guard)),
        None => policy.as_ref().map(tunnels_of),
    });
    // If the user names tunnels, only those count.
    let own = match matches.contains_id("tunnel") {
        true => Vec::new(),
        false => own_tunnels(),
    };
    let of_guard = || {
        let lan = guard.as_ref()?.within().into_iter().map(str::to_owned);
        Some(lan.collect::<Vec<_>>()).filter(|lan| !lan.is_empty())
    };
    let lan = values(matches, "lan").or_else(of_guard);
    let lan = lan.unwrap_or_else(|| policy.map(|it| it.lan).unwrap_or_default());
    let from_lan = matches.get_one::<u64>("from-lan");
    if from_lan.is_some() && lan.is_empty() {
        return Err(LeakTestError::NoLan);
    }
    let devices = Devices::new(tunnels.as_deref(), &own, &lan)?;
    for name in missing(matches, &devices) {
        log::warn!("there is no device {name}");
    }
    Ok(Plan {
        domain: domain.unwrap_or_else(|| DOMAIN.to_owned()),
        devices,
        from_lan: from_lan.map(|it| Duration::from_secs(*it)),
        packets: !matches.get_flag("no-packets"),
        router: !matches.get_flag("no-router"),
    })
}

/// Devices, and patterns of tunnels, that the command line names and this host does not have.
fn missing(matches: &ArgMatches, devices: &Devices) -> Vec<String> {
    let mut missing: Vec<String> = values(matches, "lan").unwrap_or_default();
    missing.retain(|it| !devices.has(|name| name == it));
    let tunnels: Vec<Pattern> = values(matches, "tunnel").unwrap_or_default();
    let tunnels = tunnels
        .iter()
        .filter(|it| !devices.has(|name| it.matches(name)));
    missing.extend(tunnels.map(ToString::to_string));
    missing
}

/// The devices of all tunnels of this program that are up.
fn own_tunnels() -> Vec<String> {
    let statuses = crate::status::now().unwrap_or_default();
    statuses.into_iter().map(|it| it.interface).collect()
}

/// The devices that the guard counts as tunnels.
fn guarded_tunnels(guard: &config::guard::Guard) -> Vec<Pattern> {
    match guard.is_empty() {
        true => guard.tunnels.clone(),
        false => {
            let parts = guard.parts();
            parts.iter().flat_map(|it| it.tunnels.to_vec()).collect()
        }
    }
}

/// The devices that the policy counts as tunnels.
fn tunnels_of(policy: &config::policy::Policy) -> Vec<Pattern> {
    let named = policy.devices().into_iter().filter_map(Pattern::new);
    policy.tunnels.iter().cloned().chain(named).collect()
}

/// A random label, for which no query has been sent before.
fn token() -> Vec<u8> {
    let mut bytes = [0; 8];
    crypto::random(&mut bytes);
    format!("leak{}", crypto::hex(&bytes)).into_bytes()
}

/// Documentation addresses (RFC 5737, RFC 3849) that no other probe uses, so that the address identifies the probe of a
/// packet.
fn nowhere(taken: &[Probe]) -> [IpAddr; 2] {
    let mut random = [0; 9];
    crypto::random(&mut random);
    let of = |host: u8| IpAddr::from([203, 0, 113, host % 253 + 1]);
    let is_taken = |it: IpAddr| taken.iter().any(|probe| probe.to == Some(it));
    let mut host = random[0] % 253;
    // There are more addresses than probes.
    while is_taken(of(host)) {
        host = (host + 1) % 253;
    }
    let mut v6 = [0; 16];
    v6[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    v6[8..].copy_from_slice(&random[1..]);
    [of(host), Ipv6Addr::from(v6).into()]
}

fn probes(plan: &Plan) -> Vec<Probe> {
    let mut probes = Vec::new();
    let text = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let servers = host::name_servers_in(&text).filter_map(|it| it.parse().ok());
    let mut servers: Vec<IpAddr> = servers.take(SERVERS_MAX).collect();
    if servers.is_empty() {
        servers.extend(OWN);
    }
    for server in servers.into_iter().filter(|_| plan.router) {
        probes.push(Probe {
            to: Some(server),
            v6: Some(server.is_ipv6()),
            ..Probe::new(From::Router, Kind::Query, token())
        });
    }
    let packets = |probes: &mut Vec<Probe>, from| {
        for to in nowhere(probes) {
            probes.push(Probe {
                to: Some(to),
                v6: Some(to.is_ipv6()),
                ..Probe::new(from, Kind::Packet, token())
            });
        }
    };
    if plan.packets && plan.router {
        packets(&mut probes, From::Router);
    }
    if plan.from_lan.is_some() {
        probes.push(Probe::new(From::Lan, Kind::Query, token()));
        if plan.packets {
            packets(&mut probes, From::Lan);
        }
    }
    probes
}

/// Prints what the user is to run on a device of the LAN.
fn tell(probes: &[Probe], plan: &Plan, time: Duration) {
    note(format!(
        "run on a computer in the LAN, within {} seconds:",
        time.as_secs()
    ));
    for probe in probes.iter().filter(|it| it.from == From::Lan) {
        match probe.to {
            None => note(format!("  nslookup {}", name(probe, &plan.domain))),
            Some(to) => note(format!("  ping {to}")),
        }
    }
}

fn name(probe: &Probe, domain: &str) -> String {
    format!("{}.{domain}", String::from_utf8_lossy(&probe.token))
}

fn title(probe: &Probe, domain: &str) -> String {
    let from = match probe.from {
        From::Router => "router",
        From::Lan => "LAN",
    };
    match (probe.kind, probe.to) {
        (Kind::Query, Some(server)) => {
            format!("{from}, query to {server} for {}", name(probe, domain))
        }
        (Kind::Query, None) => format!("{from}, query for {}", name(probe, domain)),
        (Kind::Packet, to) => {
            let to = to.map(|it| it.to_string()).unwrap_or_default();
            format!("{from}, packet to {to}")
        }
    }
}

fn words(verdict: &Verdict, devices: &Devices) -> String {
    let names = |list: &[u32]| devices.names(list).join(", ");
    match verdict {
        Verdict::Leak(list) => format!("LEFT THROUGH {}", names(list)),
        Verdict::Tunnel(list) => format!("left through the tunnel {}", names(list)),
        Verdict::Held => "did not leave".to_owned(),
        Verdict::Unknown(why) => format!("unknown: {why}"),
    }
}

fn code(found: &[Verdict]) -> u8 {
    let any = |is: fn(&Verdict) -> bool| found.iter().any(is);
    match () {
        () if any(|it| matches!(it, Verdict::Leak(_))) => LEAK,
        () if found.is_empty() || any(|it| matches!(it, Verdict::Unknown(_))) => UNKNOWN,
        () => 0,
    }
}

fn document(probes: &[Probe], found: &[Verdict], plan: &Plan, code: u8) -> Value {
    let one = |(probe, verdict): (&Probe, &Verdict)| {
        let (result, list, why) = match verdict {
            Verdict::Leak(list) => ("leak", &list[..], None),
            Verdict::Tunnel(list) => ("tunnel", &list[..], None),
            Verdict::Held => ("held", &[][..], None),
            Verdict::Unknown(why) => ("unknown", &[][..], Some(why)),
        };
        json!({
            "from": match probe.from { From::Router => "router", From::Lan => "lan" },
            "what": match probe.kind { Kind::Query => "query", Kind::Packet => "packet" },
            "family": probe.v6.map(|v6| if v6 { "ipv6" } else { "ipv4" }),
            "to": probe.to.map(|it| it.to_string()),
            "name": (probe.kind == Kind::Query).then(|| name(probe, &plan.domain)),
            "result": result,
            "devices": plan.devices.names(list),
            "why": why,
        })
    };
    json!({
        "result": match code { 0 => "none", LEAK => "leak", _ => "unknown" },
        "probes": probes.iter().zip(found).map(one).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leak_counts_before_what_is_not_known() {
        let unknown = || Verdict::Unknown("why".to_owned());
        assert_eq!(code(&[Verdict::Held, Verdict::Tunnel(vec![7])]), 0);
        assert_eq!(code(&[Verdict::Held, unknown()]), UNKNOWN);
        assert_eq!(code(&[unknown(), Verdict::Leak(vec![3])]), LEAK);
        assert_eq!(code(&[]), UNKNOWN);
    }

    #[test]
    fn names_and_addresses_are_nobodys_and_new() {
        assert_ne!(token(), token());
        assert!(config::types::is_domain(&format!(
            "{}.{DOMAIN}",
            String::from_utf8(token()).unwrap()
        )));
        let [v4, v6] = nowhere(&[]);
        assert!(v4.to_string().starts_with("203.0.113."), "{v4}");
        assert!(v6.to_string().starts_with("2001:db8:"), "{v6}");
    }

    /// Otherwise a packet of the router could be taken for the LAN's.
    #[test]
    fn two_probes_never_have_the_same_address() {
        let probe = |host: u8| Probe {
            to: Some(Ipv4Addr::new(203, 0, 113, host).into()),
            ..Probe::new(From::Router, Kind::Packet, token())
        };
        for free in [1, 77, 253] {
            let taken: Vec<_> = (1..=253).filter(|it| *it != free).map(probe).collect();
            assert_eq!(Some(nowhere(&taken)[0]), probe(free).to);
        }
    }

    #[test]
    fn the_json_is_documented() {
        let plan = Plan {
            domain: DOMAIN.to_owned(),
            devices: Devices::new(None, &[], &[]).unwrap(),
            from_lan: None,
            packets: true,
            router: true,
        };
        let to = |probe| Probe {
            to: Some(OWN[0]),
            v6: Some(false),
            ..probe
        };
        let probes = [
            to(Probe::new(From::Router, Kind::Query, token())),
            Probe::new(From::Lan, Kind::Packet, token()),
        ];
        let found = [
            Verdict::Leak(vec![7]),
            Verdict::Unknown("a reason".to_owned()),
        ];
        let document = document(&probes, &found, &plan, LEAK);
        crate::tests::assert_documented("leak-test", &[document]);
    }
}
