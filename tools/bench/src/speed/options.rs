//! The command line of `millrace speed`.

use clap::builder::PossibleValue;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use crypto::Backend;
use crypto::primitives::Algorithm;

/// Default sizes of messages and packets in bytes: those of the published tables, and a full packet.
const BYTES: [usize; 6] = [16, 64, 256, 1024, 1408, 8192];

/// Sizes with `--quick`: a voice packet and a download packet.
const QUICK_BYTES: [usize; 2] = [64, 1408];

/// Packets at a time: one, and about as many as a tunnel holds under load.
const BATCHES: [usize; 2] = [1, 32];

/// Seconds of each measurement.
const SECONDS: f64 = 0.1;

/// Seconds of each measurement with `--quick`.
const QUICK_SECONDS: f64 = 0.02;

/// Longest packet that fits a tunnel's slot.
const BYTES_MAX: i64 = 65_000;

const COLUMNS: &str = "\
Figures are payload in 1000s of bytes per second of processor time of one thread, as in `openssl speed`. Those
of accelerators are per second of real time, because the processor sleeps while they work. Each block is a
back end with one number of packets per batch; its right columns are ratios to portable code with one packet
per batch (or the smallest requested batch) and, with --compare, to OpenSSL.

A tunnel cipher is everything that is done to a packet: `aes-256-cbc+hmac-sha1` pads, encrypts and
authenticates like OpenVPN, `chacha20-poly1305` seals like WireGuard. Its figures count payload only; the
packet's number, padding, IV and tag are extra work.

The table of tunnel ciphers shows the highest rate that the ciphers allow: on one core, and on all cores
together (the sum over threads, each by its own processor time). The last table shows the code chosen for
tunnels here.

--system runs no cipher. It writes, copies and reads 2 x 16 MiB of memory, computes 2400 digits of pi ten
times and 9009 of e, and shows the seconds beside those published for two routers, with their vendors' builds
and with builds whose compiler options fit the processor. pi and e are whole-number divisions: they show
whether a build for ARMv7 uses the divide instruction. The published memory figures are not comparable,
because their method is unknown. With --quick it runs once; otherwise it shows the best of three runs.";

const NAMES: &str = "\
An ALGORITHM is one of these, another CIPHER+hmac-DIGEST of OpenVPN, a name of `openssl speed` (des-ede3,
rsa2048, ...), or a group: hashes, ciphers, public-key, tunnels, article (those in the published tables of
routers).";

/// Width of the help text, in columns.
const WIDTH: usize = 110;

/// The help text after the options.
fn explanation() -> String {
    let mut text = format!("{COLUMNS}\n\n{NAMES}");
    let mut column = WIDTH;
    for one in Algorithm::ALL {
        let name = one.to_string();
        if column + 1 + name.len() > WIDTH {
            text += "\n ";
            column = 1;
        }
        text.push(' ');
        text += &name;
        column += 1 + name.len();
    }
    text
}

/// The measurements to make.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Options {
    pub algorithms: Vec<Algorithm>,
    pub backends: Vec<Backend>,
    pub batches: Vec<usize>,
    pub bytes: Vec<usize>,
    /// Seconds of each measurement.
    pub seconds: f64,
    /// Whether to compare with the installed OpenSSL.
    pub compare: bool,
    /// Whether to measure memory, pi and e instead of ciphers.
    pub system: bool,
    /// Whether to measure fewer sizes, for a shorter time.
    pub quick: bool,
    /// Whether to show only one table, the rates of tunnels: no algorithm was named.
    pub first_look: bool,
    pub json: bool,
}

/// Builds the command's `clap` definition.
pub(super) fn command() -> Command {
    let list = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name(value)
            .value_delimiter(',')
            .help(help)
    };
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .action(ArgAction::SetTrue)
            .help(help)
    };
    Command::new("speed")
        .about("Measure ciphers, hashes and signatures on this machine")
        .after_long_help(explanation())
        .arg(
            Arg::new("ALGORITHM")
                .num_args(0..)
                .value_parser(algorithms)
                .help("Algorithms or groups to measure [default: all]; --help lists them"),
        )
        .arg(
            Arg::new("seconds")
                .long("seconds")
                .value_name("S")
                .value_parser(seconds)
                .help("Seconds of each measurement, 0.001 to 3600; three times that for public keys [default: 0.1]"),
        )
        .arg(
            list("bytes", "N", "Message sizes in bytes, comma-separated [default: 16,64,256,1024,1408,8192]")
                .value_parser(value_parser!(u32).range(1..=BYTES_MAX)),
        )
        .arg(
            list("batch", "N", "Packets at a time, comma-separated [default: 1,32]")
                .value_parser(value_parser!(u32).range(1..=256)),
        )
        .arg(
            list("backend", "NAMES", "Back ends, comma-separated [default: all that this machine has]")
                .value_parser(Backend::ALL.map(|one| PossibleValue::new(one.name()))),
        )
        .arg(flag(
            "quick",
            "A quick look at the speed of tunnels, in seconds; ALGORITHMs with 64 and 1408 bytes, 0.02 s each",
        ))
        .arg(
            flag("system", "Measure memory, pi and e instead of ciphers, beside published times of routers")
                .conflicts_with_all(["ALGORITHM", "seconds", "bytes", "batch", "backend", "compare"]),
        )
        .arg(
            Arg::new("compare")
                .long("compare")
                .value_name("PROGRAM")
                .value_parser([PossibleValue::new("openssl")])
                .help("Run the installed `openssl speed` as well, at least a second for each figure"),
        )
        .arg(flag("json", "Print one JSON object per line as it is measured"))
}

/// Parses the name of an algorithm or of a group.
fn algorithms(name: &str) -> Result<Vec<Algorithm>, String> {
    let group: Option<fn(&Algorithm) -> bool> = match name.to_ascii_lowercase().as_str() {
        "hashes" => Some(|one| matches!(one, Algorithm::Hash(_))),
        "ciphers" => Some(|one| matches!(one, Algorithm::Cbc(_) | Algorithm::Rc4)),
        "public-key" => Some(|one| one.is_public_key()),
        "tunnels" => Some(|one| one.is_tunnel()),
        "article" => Some(is_published),
        _ => None,
    };
    if let Some(group) = group {
        return Ok(Algorithm::ALL.into_iter().filter(group).collect());
    }
    Algorithm::from_name(name).map(|one| vec![one]).ok_or_else(|| {
        let all: Vec<String> = Algorithm::ALL.iter().map(Algorithm::to_string).collect();
        format!(
            "not an algorithm or group; known are {}, other pairs of a cipher and +hmac-DIGEST, and the groups \
             hashes, ciphers, public-key, tunnels and article",
            all.join(", ")
        )
    })
}

/// Whether the published router tables include the algorithm.
fn is_published(algorithm: &Algorithm) -> bool {
    match algorithm {
        Algorithm::Hash(_) | Algorithm::Rsa2048 | Algorithm::Dsa2048 => true,
        Algorithm::Cbc(cipher) => *cipher != crypto::Cipher::BlowfishCbc,
        _ => false,
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok();
    seconds
        .filter(|seconds| (0.001..=3600.0).contains(seconds))
        .ok_or_else(|| "not a number of seconds from 0.001 to 3600".to_owned())
}

impl From<&ArgMatches> for Options {
    fn from(matches: &ArgMatches) -> Self {
        let quick = matches.get_flag("quick");
        let numbers = |name: &str, default: &[usize]| {
            let Some(given) = matches.get_many::<u32>(name) else {
                return default.to_vec();
            };
            // Skip sizes that do not fit into usize.
            sorted(given.filter_map(|&number| usize::try_from(number).ok()))
        };
        let json = matches.get_flag("json");
        let given = ["ALGORITHM", "bytes", "batch", "compare"];
        let first_look = quick && !json && !given.iter().any(|it| matches.contains_id(it));
        let algorithms = match matches.get_many::<Vec<Algorithm>>("ALGORITHM") {
            Some(given) => {
                let mut chosen = Vec::new();
                for &one in given.flatten() {
                    if !chosen.contains(&one) {
                        chosen.push(one);
                    }
                }
                chosen
            }
            // The algorithms that tunnels should use.
            None if first_look => Algorithm::ALL.into_iter().filter(is_recommended).collect(),
            None => Algorithm::ALL.to_vec(),
        };
        let backends = match matches.get_many::<String>("backend") {
            Some(given) => sorted(given.filter_map(|name| name.parse().ok())),
            None => Backend::ALL.to_vec(),
        };
        Self {
            algorithms,
            backends,
            batches: numbers("batch", if first_look { &BATCHES[1..] } else { &BATCHES }),
            bytes: match (first_look, quick) {
                (true, _) => vec![QUICK_BYTES[1]],
                (_, true) => numbers("bytes", &QUICK_BYTES),
                _ => numbers("bytes", &BYTES),
            },
            seconds: match matches.get_one("seconds") {
                Some(&seconds) => seconds,
                None if quick => QUICK_SECONDS,
                None => SECONDS,
            },
            compare: matches.contains_id("compare"),
            system: matches.get_flag("system"),
            quick,
            first_look,
            json,
        }
    }
}

fn is_recommended(algorithm: &Algorithm) -> bool {
    let name = algorithm.to_string();
    algorithm.is_tunnel() && (name.starts_with("aes") || name.starts_with("chacha20"))
}

fn sorted<T: Ord>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut values: Vec<T> = values.collect();
    values.sort_unstable();
    values.dedup();
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options, clap::Error> {
        let words = ["speed"].iter().chain(words);
        let matches = command().try_get_matches_from(words)?;
        Ok(Options::from(&matches))
    }

    #[test]
    fn everything_is_measured_unless_something_is_chosen() {
        let options = parse(&[]).unwrap();
        assert_eq!(options.algorithms, Algorithm::ALL);
        assert_eq!(options.bytes, BYTES);
        assert_eq!(options.batches, BATCHES);
        assert_eq!(options.backends, Backend::ALL);
        assert_eq!(options.seconds, SECONDS);
        assert!(!options.json && !options.compare && !options.system && !options.quick);
    }

    #[test]
    fn lists_are_sorted_and_nothing_is_measured_twice() {
        let options = parse(&[
            "--bytes=1408,64,1408",
            "--batch",
            "64,1",
            "--backend",
            "simd,portable",
            "tunnels",
            "sha1",
            "aes-256-gcm",
        ])
        .unwrap();
        assert_eq!(options.bytes, [64, 1408]);
        assert_eq!(options.batches, [1, 64]);
        assert_eq!(options.backends, [Backend::Portable, Backend::Simd]);
        let gcm = Algorithm::from_name("aes-256-gcm").unwrap();
        let times = options.algorithms.iter().filter(|one| **one == gcm);
        assert_eq!(times.count(), 1);
        assert_eq!(
            options.algorithms.last(),
            Algorithm::from_name("sha1").as_ref()
        );
    }

    #[test]
    fn the_articles_group_has_its_tables() {
        let options = parse(&["article"]).unwrap();
        let names: Vec<String> = options
            .algorithms
            .iter()
            .map(Algorithm::to_string)
            .collect();
        assert_eq!(
            names,
            [
                "sha1",
                "sha256",
                "sha512",
                "des-cbc",
                "des-ede3-cbc",
                "aes-128-cbc",
                "aes-192-cbc",
                "aes-256-cbc",
                "rsa-2048",
                "dsa-2048"
            ]
        );
    }

    #[test]
    fn quick_gives_way_to_what_is_given() {
        let options = parse(&["--quick"]).unwrap();
        assert!(options.first_look && options.algorithms.len() < 16);
        assert_eq!((options.bytes, options.seconds), (vec![1408], 0.02));
        let options = parse(&["--quick", "sha1"]).unwrap();
        assert!(!options.first_look && options.algorithms.len() == 1);
        assert_eq!((options.bytes, options.seconds), (vec![64, 1408], 0.02));
        let options = parse(&["--quick", "--bytes=9", "--seconds=1.5"]).unwrap();
        assert_eq!((options.bytes, options.seconds), (vec![9], 1.5));
    }

    #[test]
    fn the_system_is_measured_without_ciphers() {
        let options = parse(&["--system", "--quick", "--json"]).unwrap();
        assert!(options.system && options.quick && options.json);
        for word in [
            "sha1",
            "--seconds=1",
            "--bytes=64",
            "--batch=1",
            "--backend=simd",
            "--compare=openssl",
        ] {
            let error = parse(&["--system", word]).unwrap_err();
            assert_eq!(
                error.kind(),
                clap::error::ErrorKind::ArgumentConflict,
                "{word}"
            );
        }
    }

    #[test]
    fn the_help_has_every_name_and_fits_a_terminal() {
        let text = explanation();
        for one in Algorithm::ALL {
            let name = one.to_string();
            assert!(text.split_whitespace().any(|word| word == name), "{name}");
        }
        assert!(text.lines().all(|line| line.len() <= WIDTH + 2), "{text}");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (words, says) in [
            (&["aes-512-cbc"][..], "aes-256-cbc+hmac-sha1"),
            (&["--seconds=0"], "0.001 to 3600"),
            (&["--seconds=nan"], "0.001 to 3600"),
            (&["--bytes=0"], "1..=65000"),
            (&["--batch=1,x"], "invalid digit"),
            (&["--backend=neon"], "portable, simd, accelerator"),
            (&["--compare=libressl"], "openssl"),
        ] {
            let error = parse(words).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{words:?}");
            assert!(error.to_string().contains(says), "{words:?}: {error}");
        }
    }
}
