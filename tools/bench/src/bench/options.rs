//! The command line of `millrace bench`.

use std::path::PathBuf;

use clap::builder::PossibleValue;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use super::contender::{AGAINST_REPETITIONS, AGAINST_TESTS, Contender, pairs_against, program_at};
use super::lines;
use super::openvpn::{Ends, Suite};
use super::test::Test;

const COLUMNS: &str = "Columns:
  TCP 1, TCP 1 back    one stream from a to b and from b to a, Mbit/s of payload (iperf3, cubic)
  TCP 4, both ways     four streams; four each way at once, the sum of all
  UDP 1300 B, 64 B     the highest rate at which at most 0.1 % of the datagrams get lost
  send, receive        CPU seconds (user and system) of the tunnel process at that end per gigabyte (1e9 B)
                       of payload; with both ways at once, a counts as sending
  ping mean, p99       round trip times in µs; under load: while one TCP stream runs, every 5 ms
  set-up               ms from the client's configuration with `wg` to the first answered datagram; the
                       listener runs and is configured already; includes the time that `wg` takes. With
                       OpenVPN from the start of the client's process
  idle, after, at most MB in RAM of the bigger end: after one handshake, after all loads, maximum

Names of OpenVPN are CIPHER after ovpn- (Millrace at both ends), ovpn-client- (Millrace with the stock server),
ovpn-server- (the stock client with Millrace) or openvpn- (the stock program at both ends, to which the others
are compared). Their certificates are RSA of 2048 bits; MILLRACE_OPENVPN names another stock program.

--against PATH compares this program with another build of it, one change with the commit before it for example:
WireGuard, and OpenVPN with AES-256-GCM, AES-256-CBC with SHA1, and AES-256-GCM over TCP, each program at both
ends. Names of the other program are `other` and those that begin with other-; the tests are tcp1, tcp1-back and
memory unless --test names others, and --impl names some of millrace, ovpn-gcm, ovpn-cbc and ovpn-gcm-tcp. The
verdicts say whether this program is as fast (0.97), takes as much processor time (1.03) and no more memory
(1.00). Both should be built in the same way.

Every repetition runs each test with all implementations one after the other, so that a change of the machine
hits all of them; the ratio to the reference is taken in each repetition, and the median of the ratios counts.
Both ends, the load and its sink share this machine: only ratios carry over to another one.
Peers are searched in the directory that MILLRACE_PEERS names, in target/peers/bin (`make peers ALL=1`) and in
PATH; missing ones are skipped. The exit status is 0 unless something failed to run, whatever the figures.";

/// The options of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Options {
    pub contenders: Vec<Contender>,
    pub tests: Vec<Test>,
    pub repetitions: u32,
    pub seconds: u32,
    /// Number of clients of one server; replaces the other tests.
    pub clients: Option<u32>,
    /// Parts of the line measurements; replace the other tests.
    pub lines: Vec<lines::Part>,
    /// Files that the HTTP test fetches.
    pub requests: u64,
    pub segmentation: bool,
    pub reference: Contender,
    /// Another build of this program, the only one to compare with.
    pub against: Option<PathBuf>,
    pub json: Option<PathBuf>,
    pub markdown: Option<PathBuf>,
    /// Path prefix of the plots.
    pub plot: Option<PathBuf>,
}

/// Builds the command's `clap` definition.
pub(super) fn command() -> Command {
    let names = |values: Vec<&'static str>| values.into_iter().map(PossibleValue::new);
    let contenders = || {
        let value = |one: Contender| PossibleValue::new(one.name()).help(one.what());
        Contender::every().map(value).collect::<Vec<_>>()
    };
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .action(ArgAction::SetTrue)
            .help(help)
    };
    let file = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help(help)
    };
    let number = |name: &'static str, most: i64, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("N")
            .value_parser(value_parser!(u32).range(1..=most))
            .help(help)
    };
    Command::new("bench")
        .about("Measure tunnels of Millrace and of other programs side by side")
        .after_long_help(COLUMNS)
        .arg(
            Arg::new("impl")
                .long("impl")
                .value_name("NAMES")
                .value_delimiter(',')
                .value_parser(contenders())
                .hide_possible_values(true)
                .help("Implementations, comma-separated [default: all WireGuard ones except millrace-null]"),
        )
        .arg(flag(
            "openvpn",
            "Measure OpenVPN: Millrace and the stock program at either end, with every cipher",
        ))
        .arg(
            Arg::new("cipher")
                .long("cipher")
                .value_name("NAMES")
                .value_delimiter(',')
                .value_parser(Suite::ALL.map(|one| PossibleValue::new(one.name()).help(one.what())))
                .help("Measure OpenVPN with only these ciphers, comma-separated"),
        )
        .arg(flag(
            "http",
            "Fetch 500 files of 1 MB on eight connections, as `ab -k -c 8 -n 500`; alone unless --test names more",
        ))
        .arg(
            Arg::new("test")
                .long("test")
                .value_name("NAMES")
                .value_delimiter(',')
                .value_parser(names(Test::ALL.map(Test::name).to_vec()).collect::<Vec<_>>())
                .help("Tests, comma-separated [default: all but http]"),
        )
        .arg(number(
            "clients",
            60_000,
            "Connect this many clients to one server, instead of the tests: OpenVPN clients with a tunnel each, \
             WireGuard clients with a handshake each [default of --impl: ovpn-gcm]",
        ))
        .arg(
            Arg::new("uplinks")
                .long("uplinks")
                .value_name("PARTS")
                .num_args(0..=1)
                .require_equals(true)
                .value_delimiter(',')
                .value_parser(lines::Part::ALL.map(lines::Part::name))
                .default_missing_values(lines::Part::ALL.map(lines::Part::name))
                .hide_possible_values(true)
                .help(
                    "Measure instead of the tests: one TCP stream over one uplink with varying delay (one), over two \
                     uplinks at once (two), or pings beside streams that fill an uplink (full)",
                )
            .conflicts_with_all([
                "impl", "openvpn", "cipher", "http", "test", "clients", "null", "against", "json", "plot",
            ]),
        )
        .arg(number("reps", 1000, "Repetitions [default: 3, 5 with --against]"))
        .arg(number("seconds", 3600, "Seconds of each load [default: 3, 10 with --uplinks]"))
        .arg(flag(
            "null",
            "Also measure millrace-null: the same engine without encryption",
        ))
        .arg(flag(
            "nogso",
            "Switch off the cable's segmentation offloads, like a card without TSO and USO",
        ))
        .arg(
            Arg::new("reference")
                .long("reference")
                .value_name("NAME")
                .value_parser(contenders())
                .hide_possible_values(true)
                .default_value(Contender::WireguardGo.name())
                .help("The implementation to which ratios are computed"),
        )
        .arg(
            Arg::new("against")
                .long("against")
                .value_name("PATH")
                .value_parser(program_at)
                .conflicts_with_all(["openvpn", "cipher", "http", "clients", "null", "reference"])
                .help("Compare this program with another build of it at PATH, which is the reference"),
        )
        .arg(flag(
            "quick",
            "Run one repetition of one second, as a check",
        ))
        .arg(file("json", "Write every value to a file"))
        .arg(file("markdown", "Write the report to a file, too"))
        .arg(
            file(
                "plot",
                "Draw throughput and CPU per GB of one TCP stream as FILE-light.svg and FILE-dark.svg",
            ),
        )
}

impl From<&ArgMatches> for Options {
    fn from(matches: &ArgMatches) -> Self {
        let names = |key| matches.get_many::<String>(key).unwrap_or_default();
        let mut contenders: Vec<Contender> = names("impl")
            .filter_map(|name| Contender::named(name))
            .collect();
        let suites: Vec<Suite> = names("cipher")
            .filter_map(|name| Suite::named(name))
            .collect();
        if matches.get_flag("openvpn") || !suites.is_empty() {
            let wanted = |one: &Contender| match one {
                Contender::OpenVpn(_, suite) => suites.is_empty() || suites.contains(suite),
                _ => false,
            };
            contenders.extend(Contender::openvpn().filter(wanted));
        }
        let clients = matches.get_one::<u32>("clients").copied();
        let named = |name: &String| lines::Part::named(name);
        let mut lines: Vec<_> = names("uplinks").filter_map(named).collect();
        lines.sort_by_key(|part| *part as usize);
        lines.dedup();
        let against = matches.get_one::<PathBuf>("against").cloned();
        if contenders.is_empty() && clients.is_some() {
            contenders.push(Contender::OpenVpn(Ends::Millrace, Suite::Gcm));
        }
        if contenders.is_empty() {
            contenders = Contender::ALL.to_vec();
            contenders.retain(|one| *one != Contender::MillraceNull);
        }
        if matches.get_flag("null") && !contenders.contains(&Contender::MillraceNull) {
            contenders.push(Contender::MillraceNull);
        }
        contenders.sort_by_key(|one| Contender::every().position(|other| other == *one));
        contenders.dedup();
        if against.is_some() {
            let wanted = |(ours, _): &(Contender, Contender)| {
                !matches.contains_id("impl") || contenders.contains(ours)
            };
            contenders = pairs_against()
                .filter(wanted)
                .flat_map(<[_; 2]>::from)
                .collect();
        }
        let mut tests = Test::ALL.to_vec();
        let wanted: Vec<Test> = names("test").filter_map(|name| Test::named(name)).collect();
        let http = matches.get_flag("http");
        tests.retain(|test| match test {
            Test::Http => http || wanted.contains(test),
            _ if !wanted.is_empty() || http => wanted.contains(test),
            _ => against.is_none() || AGAINST_TESTS.contains(test),
        });
        let quick = matches.get_flag("quick");
        let number = |key, otherwise| {
            let given = matches.get_one::<u32>(key).copied();
            given.unwrap_or(if quick { 1 } else { otherwise })
        };
        let reference = matches.get_one::<String>("reference");
        Self {
            contenders,
            tests,
            repetitions: number("reps", against.as_ref().map_or(3, |_| AGAINST_REPETITIONS)),
            // On a long path TCP needs seconds to reach its rate.
            seconds: number("seconds", if lines.is_empty() { 3 } else { 10 }),
            clients,
            lines,
            requests: if quick { 16 } else { 500 },
            segmentation: !matches.get_flag("nogso"),
            reference: reference
                .and_then(|name| Contender::named(name))
                .unwrap_or(Contender::WireguardGo),
            against,
            json: matches.get_one("json").cloned(),
            markdown: matches.get_one("markdown").cloned(),
            plot: matches.get_one("plot").cloned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, clap::Error> {
        let words = std::iter::once("bench").chain(line.split_whitespace());
        let matches = command().try_get_matches_from(words)?;
        Ok((&matches).into())
    }

    #[test]
    fn everything_is_measured_unless_told_otherwise() {
        let options = parse("").unwrap();
        assert_eq!(options.contenders.len(), Contender::ALL.len() - 1);
        assert_eq!(options.tests.len(), Test::ALL.len() - 1);
        assert!(!options.tests.contains(&Test::Http));
        assert_eq!((options.repetitions, options.seconds), (3, 3));
        assert!(options.segmentation);
        let options = parse("--null --quick --nogso").unwrap();
        assert_eq!(options.contenders, Contender::ALL);
        assert_eq!((options.repetitions, options.seconds), (1, 1));
        assert!(!options.segmentation);
    }

    #[test]
    fn another_build_is_compared_pair_by_pair() {
        let options = parse("--against /bin/sh").unwrap();
        let name = options.against.unwrap();
        assert!(name.is_absolute() && name.is_file());
        let names: Vec<&str> = options.contenders.iter().map(|one| one.name()).collect();
        assert_eq!(names[..4], ["millrace", "other", "ovpn-gcm", "other-gcm"]);
        assert_eq!(names.len(), 8);
        assert_eq!(options.tests, [Test::Tcp1, Test::Tcp1Back, Test::Memory]);
        assert_eq!((options.repetitions, options.seconds), (5, 3));
        let options = parse("--against /bin/sh --quick --test ping").unwrap();
        assert_eq!(options.tests, [Test::Ping]);
        assert_eq!(options.repetitions, 1);
        let options = parse("--against /bin/sh --impl ovpn-cbc,millrace").unwrap();
        let names: Vec<&str> = options.contenders.iter().map(|one| one.name()).collect();
        assert_eq!(names, ["millrace", "other", "ovpn-cbc", "other-cbc"]);
    }

    #[test]
    fn another_build_must_be_a_program() {
        for (wrong, why) in [
            ("--against /no/such/program", "No such file"),
            ("--against /etc/passwd", "not executable"),
            ("--against /etc", "not a file"),
            ("--against /bin/sh --cipher gcm", "cannot be used with"),
            ("--against /bin/sh --reference none", "cannot be used with"),
        ] {
            let error = parse(wrong).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{wrong}");
            assert!(error.to_string().contains(why), "{wrong}: {error}");
        }
    }

    #[test]
    fn openvpn_is_measured_by_cipher() {
        let all = parse("--openvpn").unwrap().contenders;
        assert_eq!(all, Contender::openvpn().collect::<Vec<_>>());
        let options = parse("--cipher gcm,bf --http").unwrap();
        assert_eq!(options.contenders.len(), 8);
        assert_eq!(options.tests, [Test::Http]);
        let options = parse("--clients 1000").unwrap();
        assert_eq!(options.clients, Some(1000));
        assert_eq!(options.contenders[0].name(), "ovpn-gcm");
        let options = parse("--uplinks").unwrap();
        assert_eq!(options.lines, lines::Part::ALL);
        let options = parse("--uplinks=full,one").unwrap();
        assert_eq!(options.lines, [lines::Part::One, lines::Part::Full]);
        assert!(parse("--uplinks=three").is_err());
        assert_eq!((options.repetitions, options.seconds), (3, 10));
        assert!(parse("--uplinks --clients 5").is_err());
        let options = parse("--impl openvpn-gcm,millrace --http --test ping").unwrap();
        assert_eq!(options.contenders[0], Contender::Millrace);
        assert_eq!(options.tests, [Test::Ping, Test::Http]);
    }

    #[test]
    fn names_are_checked_and_put_in_order() {
        let options =
            parse("--impl none,millrace,none --test udp64,tcp1 --quick --reps 2").unwrap();
        assert_eq!(
            options.contenders,
            [Contender::Millrace, Contender::Nothing]
        );
        assert_eq!(options.tests, [Test::Tcp1, Test::Udp64]);
        assert_eq!((options.repetitions, options.seconds), (2, 1));
        for wrong in [
            "--impl openvpn",
            "--cipher rc4",
            "--test tcp2",
            "--reps 0",
            "--reference x",
        ] {
            assert_eq!(parse(wrong).unwrap_err().exit_code(), 2, "{wrong}");
        }
    }
}
