//! The implementations that are compared; and the comparison with another build of this program (`--against`): its path
//! and the measurements for both.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use lab::openvpn::{OpenVpn as _, StockOpenVpn};
use lab::peer::{
    AmneziaWg, BoringTun, GotaTun, Millrace, PeerOptions, WireGuardPeer, WireguardGo,
    WireguardGoPackaged,
};
use lab::{Carrier, LabError, tools};

use crate::bench::openvpn::{self, Ends, Suite};
use crate::bench::test::Test;

/// A program or path that carries packets from one host to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contender {
    Millrace,
    MillracePlain,
    MillraceNull,
    WireguardGo,
    WireguardGoPackaged,
    BoringTun,
    GotaTun,
    Forwarder,
    Nothing,
    /// A program at both ends with settings of AmneziaWG that this program of its authors knows: ours, or that program.
    AmneziaWg {
        ours: bool,
        of: AmneziaWg,
    },
    /// Another build of this program, at a path that the command line names.
    Other,
    OpenVpn(Ends, Suite),
}

/// The settings of `millrace-plain`, which turn off every segmentation and receive offload. sendmmsg and recvmmsg
/// stay: they are not offloads, and every router's kernel has them.
const PLAIN: [&str; 5] = ["tun-gso", "tun-uso", "tun-gro", "udp-gso", "udp-gro"];

impl Contender {
    /// The contenders with WireGuard, and the baselines.
    pub(crate) const ALL: [Self; 9] = [
        Self::Millrace,
        Self::WireguardGo,
        Self::WireguardGoPackaged,
        Self::BoringTun,
        Self::GotaTun,
        Self::MillracePlain,
        Self::MillraceNull,
        Self::Forwarder,
        Self::Nothing,
    ];

    /// The contenders with OpenVPN: all pairs of programs, cipher by cipher.
    pub(crate) fn openvpn() -> impl Iterator<Item = Self> {
        let of = |suite| Ends::ALL.map(|ends| Self::OpenVpn(ends, suite));
        Suite::ALL.into_iter().flat_map(of)
    }

    /// The contenders with AmneziaWG: pairs of ours and another program.
    fn amneziawg() -> impl Iterator<Item = Self> {
        let of = |of| [true, false].map(|ours| Self::AmneziaWg { ours, of });
        [AmneziaWg::V20, AmneziaWg::V31].into_iter().flat_map(of)
    }

    /// All contenders.
    pub(crate) fn every() -> impl Iterator<Item = Self> {
        let others = Self::amneziawg().chain(Self::openvpn());
        Self::ALL.into_iter().chain(others)
    }

    /// The name on the command line and in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Millrace => "millrace",
            Self::MillracePlain => "millrace-plain",
            Self::MillraceNull => "millrace-null",
            Self::WireguardGo => "wireguard-go",
            Self::WireguardGoPackaged => "wireguard-go-packaged",
            Self::BoringTun => "boringtun",
            Self::GotaTun => "gotatun",
            Self::Forwarder => "forwarder",
            Self::Nothing => "none",
            Self::AmneziaWg { ours: false, of } => of.name(),
            Self::AmneziaWg {
                of: AmneziaWg::V31, ..
            } => "millrace-amneziawg-3.1",
            Self::AmneziaWg { .. } => "millrace-amneziawg-2.0",
            Self::Other => "other",
            Self::OpenVpn(ends, suite) => openvpn::name(ends, suite),
        }
    }

    /// A description for readers of the table.
    pub(crate) fn what(self) -> String {
        let words = match self {
            Self::OpenVpn(ends, suite) => return format!("{}: {}", ends.what(), suite.what()),
            Self::Millrace => "this program",
            Self::MillracePlain => "this program, all segmentation and receive offloads off",
            Self::MillraceNull => "this program without encryption",
            Self::WireguardGo => "the newest wireguard-go",
            Self::WireguardGoPackaged => {
                "the wireguard-go of the distribution (Debian 12: no offloads, no batches)"
            }
            Self::BoringTun => "boringtun-cli, by Cloudflare",
            Self::GotaTun => "gotatun, by Mullvad",
            Self::Forwarder => "packets to datagrams and back without encryption: the upper limit",
            Self::Nothing => "no tunnel",
            Self::AmneziaWg {
                ours: true,
                of: AmneziaWg::V31,
            } => "this program with AmneziaWG 3.1",
            Self::AmneziaWg { ours: true, .. } => "this program with AmneziaWG 2.0",
            Self::AmneziaWg {
                of: AmneziaWg::V31, ..
            } => "the authors' library, with AmneziaWG 3.1",
            Self::AmneziaWg { .. } => "amneziawg-go 0.2.16, with AmneziaWG 2.0",
            Self::Other => "the other program",
        };
        words.to_owned()
    }

    /// Returns the contender with this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::every().find(|one| one.name() == name)
    }

    /// Returns the carrier to start; `None` if the contender needs none.
    ///
    /// # Errors
    /// [`LabError::Missing`] if the program is not installed.
    pub(crate) fn carrier(self) -> Result<Option<Carrier>, LabError> {
        self.carrier_beside(None)
    }

    /// Returns the carrier, as [`Self::carrier`] does, where `other` is another build of this program.
    ///
    /// # Errors
    /// [`LabError::Missing`] if the program is not installed.
    pub(crate) fn carrier_beside(self, other: Option<&Path>) -> Result<Option<Carrier>, LabError> {
        let arguments = |arguments: Vec<String>| PeerOptions {
            arguments,
            ..PeerOptions::default()
        };
        let wireguard = |program: Box<dyn WireGuardPeer>, options| {
            program.available()?;
            Ok(Some(Carrier::WireGuard(program, options)))
        };
        let none = PeerOptions::default();
        match self {
            Self::Millrace => wireguard(Box::new(Millrace::new(own_program())), none),
            Self::MillracePlain => {
                let set = |key| ["--set".to_owned(), format!("dataplane.{key}=off")];
                let options = arguments(PLAIN.into_iter().flat_map(set).collect());
                wireguard(Box::new(Millrace::new(own_program())), options)
            }
            Self::MillraceNull => {
                let options = arguments(vec!["--null-cipher".to_owned()]);
                wireguard(Box::new(Millrace::new(null_program()?)), options)
            }
            Self::WireguardGo => wireguard(Box::new(WireguardGo), none),
            Self::WireguardGoPackaged => wireguard(Box::new(WireguardGoPackaged), none),
            Self::BoringTun => wireguard(Box::new(BoringTun), none),
            Self::GotaTun => wireguard(Box::new(GotaTun), none),
            Self::AmneziaWg { ours, of } => {
                let program: Box<dyn WireGuardPeer> = match ours {
                    true => Box::new(Millrace::new(own_program())),
                    false => Box::new(of),
                };
                let settings = of.settings();
                wireguard(program, PeerOptions { settings, ..none })
            }
            Self::Forwarder => Ok(Some(Carrier::Forwarder {
                program: own_program(),
                arguments: ["lab", "forward"].map(str::to_owned).to_vec(),
            })),
            Self::Nothing => Ok(None),
            Self::Other => wireguard(Box::new(Millrace::new(other_program(other)?)), none),
            Self::OpenVpn(ends, suite) => openvpn::carrier(ends, suite, other).map(Some),
        }
    }

    /// The version that the program prints; empty for a contender without a version of its own.
    pub(crate) fn version(self) -> String {
        if let Self::OpenVpn(..) = self {
            let stock = StockOpenVpn.available().ok();
            return stock
                .and_then(|path| tools::version(&path))
                .unwrap_or_default();
        }
        match self.carrier() {
            Ok(Some(Carrier::WireGuard(program, _))) => program.version().unwrap_or_default(),
            _ => String::new(),
        }
    }
}

/// The program that `make null-cipher` builds, beside this one. Released programs lack the null cipher.
fn null_program() -> Result<PathBuf, LabError> {
    let own = own_program();
    let target = own.parent().and_then(Path::parent);
    let built = target.map(|target| target.join("null/release/millrace"));
    let there = built.filter(|program| program.is_file());
    there.ok_or_else(|| LabError::Missing {
        tool: "a program without encryption".to_owned(),
        hint: "`make null-cipher` builds it".to_owned(),
    })
}

/// The other build of this program.
pub(super) fn other_program(other: Option<&Path>) -> Result<PathBuf, LabError> {
    other.map(Path::to_owned).ok_or_else(|| LabError::Missing {
        tool: "another build of this program".to_owned(),
        hint: "name it with --against".to_owned(),
    })
}

/// The path of this program. Where /proc is missing, there are no namespaces either.
pub(crate) fn own_program() -> PathBuf {
    env::current_exe().unwrap_or_else(|_| PathBuf::from("/proc/self/exe"))
}

/// The OpenVPN suites of the comparison, besides WireGuard.
const AGAINST_SUITES: [Suite; 3] = [Suite::Gcm, Suite::Cbc, Suite::GcmTcp];

/// The tests of the comparison.
pub(super) const AGAINST_TESTS: [Test; 3] = [Test::Tcp1, Test::Tcp1Back, Test::Memory];

/// Repetitions of the comparison: many, because differences are small.
pub(super) const AGAINST_REPETITIONS: u32 = 5;

/// This program and the other one, pair by pair: WireGuard, then each suite.
pub(super) fn pairs_against() -> impl Iterator<Item = (Contender, Contender)> {
    let of = |suite| [Ends::Millrace, Ends::Other].map(|ends| Contender::OpenVpn(ends, suite));
    let pairs = AGAINST_SUITES
        .into_iter()
        .map(of)
        .map(|[ours, other]| (ours, other));
    std::iter::once((Contender::Millrace, Contender::Other)).chain(pairs)
}

/// The error if `--impl` names none of the pairs.
pub(super) fn nothing_to_compare() -> LabError {
    let ours: Vec<_> = pairs_against().map(|(ours, _)| ours.name()).collect();
    LabError::Unusable {
        what: "--impl".to_owned(),
        hint: format!(
            "with --against, --impl must name at least one of {}",
            ours.join(", ")
        ),
    }
}

/// Resolves the path of a program.
///
/// # Errors
/// A message for the command line if the path is missing or not executable.
pub(super) fn program_at(path: &str) -> Result<PathBuf, String> {
    // Absolute, because hosts of the lab use another working directory.
    let found = fs::canonicalize(path).map_err(|error| error.to_string())?;
    let metadata = fs::metadata(&found).map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err(
            "it is not a file; name a program, target/release/millrace for example".to_owned(),
        );
    }
    if metadata.permissions().mode() & 0o111 == 0 {
        return Err("it is not executable".to_owned());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_different_and_found() {
        for one in Contender::every() {
            assert_eq!(Contender::named(one.name()), Some(one));
        }
        assert_eq!(Contender::named("pptp"), None);
    }

    #[test]
    fn each_pair_differs_in_the_program_only() {
        let names: Vec<_> = pairs_against().map(|(a, b)| [a.name(), b.name()]).collect();
        assert_eq!(
            names,
            [
                ["millrace", "other"],
                ["ovpn-gcm", "other-gcm"],
                ["ovpn-cbc", "other-cbc"],
                ["ovpn-gcm-tcp", "other-gcm-tcp"],
            ]
        );
    }

    #[test]
    fn only_a_program_is_taken() {
        assert!(program_at("/bin/sh").is_ok());
        let error = program_at("/no/such/file").unwrap_err();
        assert!(error.contains("No such file"), "{error}");
        assert!(
            program_at("/etc/passwd")
                .unwrap_err()
                .contains("not executable")
        );
        assert!(program_at("/etc").unwrap_err().contains("not a file"));
    }
}
