//! `millrace doctor --report`: figures of this router for its owner to send in. The types of the crate `report` keep
//! names, addresses, keys and paths out.

mod ciphers;
mod loopback;
mod machine;
mod peer;
#[cfg(test)]
mod tests;

use super::gather::offload_in;
use crate::{Outcome, arguments};
use clap::{Arg, ArgMatches, Command, value_parser};
use machine::{cores, features};
use report::{
    Architecture, Chip, Digest, Kernel, Loopback, Machine, Measured, Module, NoLoopback, Offload,
    OpenWrt, Peer, Report, Version,
};
use std::fs::{self, File};
use std::io::Read as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The value of `--report` without a file.
const STDOUT: &str = "-";

/// Most bytes that are read of a file; a list of packages has some 100,000.
const FILE_MAX: u64 = 4 << 20;

/// Lists of installed packages, of apk and opkg.
const PACKAGES: [&str; 2] = ["/lib/apk/db/installed", "/usr/lib/opkg/status"];

/// Adds the arguments to `doctor`.
pub(super) fn arguments(command: Command) -> Command {
    let report = Arg::new("report")
        .long("report")
        .value_name("FILE")
        .num_args(0..=1)
        .default_missing_value(STDOUT)
        .value_parser(value_parser!(PathBuf))
        .conflicts_with("json")
        .help(
            "Write figures of this router as JSON, to send in: chip, kernel, OpenWrt, ciphers, throughput of a \
             tunnel. Names, addresses and keys are left out. Takes about 10 seconds",
        );
    let end = arguments::path(loopback::END, "FILE", "Be an end of the measured tunnel");
    let peer = arguments::option(
        "with-peer",
        "ADDRESS",
        "With --report, measure a running tunnel, too: ping its peer at this IPv4 address for 5 seconds, as fast as \
         it answers",
    );
    let peer = peer
        .value_parser(value_parser!(Ipv4Addr))
        .requires("report");
    command.arg(report).arg(peer).arg(end.hide(true))
}

/// Writes the report, if the command line asks for one.
pub(super) fn run(matches: &ArgMatches) -> Option<Outcome> {
    if let Some(file) = arguments::file(matches, loopback::END) {
        return Some(loopback::end(file));
    }
    let peer = matches.get_one::<Ipv4Addr>("with-peer");
    Some(write(arguments::file(matches, "report")?, peer.copied()))
}

fn write(path: &Path, peer: Option<Ipv4Addr>) -> Outcome {
    host::terminal::note("measuring ciphers and a tunnel, for about 10 seconds");
    let measured = Figures {
        peer: peer.map(peer::measure).transpose()?,
        ciphers: ciphers::measure(),
        loopback: loopback::measure().map_err(|failure| {
            host::terminal::note(format_args!("no throughput: {failure}"));
            failure.why
        }),
    };
    let text = Texts::read().report(measured).text() + "\n";
    if path == Path::new(STDOUT) {
        host::terminal::print(text)?;
    } else {
        let written = host::written_file::replace(path, text.as_bytes(), 0o644);
        written.map_err(|error| {
            format!(
                "cannot write {}: {error}; name another file",
                path.display()
            )
        })?;
        host::terminal::note(format_args!(
            "written to {}; attach it to an issue of the project",
            path.display()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Measured figures.
struct Figures {
    ciphers: Vec<Measured>,
    loopback: Result<Loopback, NoLoopback>,
    peer: Option<Peer>,
}

/// Texts of this system. Only words of fixed lists, numbers and versions get from them into a report.
#[derive(Clone, Debug, Default)]
struct Texts {
    /// `/proc/cpuinfo`.
    cpuinfo: String,
    /// `compatible` of the device tree: texts that end with zeros.
    compatible: String,
    /// The highest clock rate, in kilohertz.
    rate: String,
    /// The kernel's release.
    kernel: String,
    /// Names of loaded modules, each at the beginning of a line.
    modules: String,
    /// `/etc/openwrt_release`; empty on another system.
    openwrt: String,
    /// Installed packages.
    packages: String,
    /// The firewall's settings.
    firewall: String,
}

impl Texts {
    fn read() -> Self {
        let mut modules = read("/proc/modules");
        for entry in fs::read_dir("/sys/module").into_iter().flatten().flatten() {
            modules += "\n";
            modules += &entry.file_name().to_string_lossy();
        }
        Self {
            cpuinfo: read("/proc/cpuinfo"),
            compatible: read("/proc/device-tree/compatible"),
            rate: read("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"),
            kernel: read("/proc/sys/kernel/osrelease"),
            modules,
            openwrt: read("/etc/openwrt_release"),
            packages: PACKAGES.map(read).concat(),
            firewall: read("/etc/config/firewall"),
        }
    }

    fn report(&self, measured: Figures) -> Report {
        let Figures {
            ciphers,
            loopback,
            peer,
        } = measured;
        let report = Report {
            schema: report::SCHEMA,
            // Every release has a version.
            program: Version::of(env!("CARGO_PKG_VERSION")),
            machine: self.machine(),
            kernel: Kernel {
                version: Version::of(self.kernel.trim()),
                modules: self.modules(),
            },
            openwrt: (!self.openwrt.is_empty()).then(|| self.openwrt()),
            ciphers,
            no_loopback: loopback.as_ref().err().copied(),
            loopback: loopback.ok(),
            peer,
            digest: Digest::default(),
        };
        report.sealed()
    }

    fn machine(&self) -> Machine {
        let this = host::machine::Machine::this();
        let chips = self.compatible.split('\0');
        let chips = chips.filter_map(|it| it.split_once(','));
        let kilohertz = self.rate.trim().parse::<u32>().ok();
        Machine {
            architecture: Architecture::named(std::env::consts::ARCH)
                .unwrap_or(Architecture::Other),
            chip: chips.filter_map(|(_, name)| Chip::named(name)).next(),
            processors: u16::try_from(this.processors).unwrap_or(u16::MAX),
            cores: cores(&self.cpuinfo),
            features: features(&self.cpuinfo),
            megahertz: kilohertz.map(|it| it / 1000),
            megabytes: u32::try_from(this.memory_mb).unwrap_or(u32::MAX),
        }
    }

    fn modules(&self) -> Vec<Module> {
        let names = self.modules.lines();
        let names = names.filter_map(|it| it.split_whitespace().next());
        let mut modules: Vec<Module> = names.filter_map(Module::named).collect();
        modules.sort_unstable();
        modules.dedup();
        modules
    }

    fn openwrt(&self) -> OpenWrt {
        // Lines such as DISTRIB_RELEASE='24.10.2'.
        let value = |name: &str| {
            let mut lines = self.openwrt.lines().filter_map(|it| it.split_once('='));
            let (_, value) = lines.find(|it| it.0 == name)?;
            Some(value.trim_matches(['\'', '"']))
        };
        let revision = value("DISTRIB_REVISION").and_then(|it| it.strip_prefix('r'));
        let revision = revision.and_then(|it| it.split('-').next()?.parse().ok());
        let package = |name| version_of(&self.packages, name);
        OpenWrt {
            release: value("DISTRIB_RELEASE").and_then(Version::of),
            revision,
            netifd: package("netifd"),
            firewall4: package("firewall4"),
            luci: package("luci-base"),
            offload: match offload_in(&self.firewall) {
                (false, _) => Offload::None,
                (true, false) => Offload::Software,
                (true, true) => Offload::Hardware,
            },
        }
    }
}

fn read(path: &str) -> String {
    let mut text = Vec::new();
    // A text that cannot be read is empty.
    let _ = File::open(path).and_then(|it| it.take(FILE_MAX).read_to_end(&mut text));
    String::from_utf8_lossy(&text).into_owned()
}

/// The version of a package in the list of apk (`P:`, `V:`) or opkg.
fn version_of(packages: &str, name: &str) -> Option<Version> {
    let mut lines = packages.lines().filter_map(|it| it.split_once(':'));
    let is_name = |key: &str| matches!(key, "P" | "Package");
    lines.find(|(key, value)| is_name(key) && value.trim() == name)?;
    let (_, version) = lines
        .take_while(|(key, _)| !is_name(key))
        .find(|(key, _)| matches!(*key, "V" | "Version"))?;
    Version::of(version.trim())
}
