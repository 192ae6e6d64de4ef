//! A branch with two emulated lines to its office, and a WireGuard tunnel between two Millraces over them.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};
use std::{io, thread};

use lab::openvpn::Directory;
use lab::peer::Keys;
use lab::{Emulator, Host, Impairment, LabError, LinkOptions, Process};
use netio::netlink::Route;
use serde_json::Value;

use crate::bench::contender::own_program;

/// The lines' names, the preferred one first.
pub(crate) const NAMES: [&str; 2] = ["dsl", "lte"];
/// The inner addresses of both ends of the tunnel.
pub(crate) const INNER: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 99, 0, 1), Ipv4Addr::new(10, 99, 0, 2)];
/// The address at which the branch reaches the office, on neither of the lines.
const OFFICE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
const PORT: u16 = 51820;
/// How long a tunnel and its lines get to come up.
const PATIENCE: Duration = Duration::from_secs(20);

/// Use of the lines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    /// The word for `Mode =`.
    pub(crate) mode: &'static str,
    /// The lines that the configuration file names.
    pub(crate) lines: &'static [usize],
}

impl Use {
    pub(crate) const fn new(mode: &'static str, lines: &'static [usize]) -> Self {
        Self { mode, lines }
    }

    /// Whether packets of one connection use several lines.
    fn reorders(&self) -> bool {
        matches!(self.mode, "duplicate" | "critical" | "balance-packets")
    }
}

/// Both ends and the lines between them. Dropping the value removes everything.
pub(crate) struct TwoLines {
    _ends: Vec<Process>,
    pub(crate) cables: [Emulator; 2],
    pub(crate) branch: Host,
    pub(crate) office: Host,
    _directory: Directory,
}

impl TwoLines {
    /// Builds both ends, the lines, and a tunnel that uses the lines in the given way. Waits until the peer answers
    /// on each line in use.
    ///
    /// # Errors
    /// [`LabError`] if something cannot be built or does not come up.
    pub(crate) fn new(lines: [Impairment; 2], how: Use) -> Result<Self, LabError> {
        let (branch, office) = (Host::private("branch")?, Host::private("office")?);
        let cables = cables(&branch, &office, lines)?;
        let directory = Directory::new()?;
        let keys = [Keys::generate(&branch)?, Keys::generate(&office)?];
        let files = [
            directory.file("branch.conf", branch_file(how, lines, &keys))?,
            directory.file("office.conf", office_file(how, &keys))?,
        ];
        let mut ends: Vec<Process> = Vec::new();
        for (host, file) in [(&office, &files[1]), (&branch, &files[0])] {
            let command = host.command(own_program()).arg("up").arg(file);
            let mut process = command.spawn()?;
            process.wait_for_line("the tunnel", PATIENCE, |line| line.contains("is up"))?;
            ends.push(process);
        }
        wait_for_lines(&branch, how.lines.len())?;
        Ok(Self {
            _ends: ends,
            cables,
            branch,
            office,
            _directory: directory,
        })
    }
}

/// Builds the lines between branch and office, and the branch's routes over each.
fn cables(branch: &Host, office: &Host, lines: [Impairment; 2]) -> Result<[Emulator; 2], LabError> {
    let links = [LinkOptions::numbered(1), LinkOptions::numbered(2)];
    let cable = |at: usize| {
        let (name, line) = (NAMES[at], [lines[at]; 2]);
        Emulator::new(branch, name, office, name, &links[at], line, at as u64 + 1)
    };
    let cables = [cable(0)?, cable(1)?];
    office.add_address("lo", OFFICE.into(), 32)?;
    let mut netlink = branch.netlink()?;
    for (at, link) in links.iter().enumerate() {
        let failed = |error| {
            let what = format!("cannot lead the branch to the office by {}", NAMES[at]);
            failed(what)(io::Error::other(error))
        };
        let mut route = Route::new(OFFICE.into(), 32).via(link.b4());
        route.dev = Some(netlink.index_of(NAMES[at]).map_err(failed)?);
        route.metric = Some(at as u32 + 1);
        netlink.add_route(&route).map_err(failed)?;
    }
    Ok(cables)
}

fn branch_file(how: Use, lines: [Impairment; 2], keys: &[Keys; 2]) -> String {
    let mut text = format!("#! [Uplinks]\n#! Mode = {}\n#! Hold = 2\n", how.mode);
    if how.reorders() {
        text += "#! Reorder = yes\n";
    }
    for line in how.lines {
        let (name, priority) = (NAMES[*line], line + 1);
        text += &format!(
            "#! [Uplink]\n#! Name = {name}\n#! Interface = {name}\n#! Priority = {priority}\n"
        );
        if let Some(rate) = lines[*line].rate {
            text += &format!("#! Rate = {rate}\n");
        }
    }
    wireguard(&text, keys, 0, Some(OFFICE.into()))
}

fn office_file(how: Use, keys: &[Keys; 2]) -> String {
    let mut text = String::new();
    if !matches!(how.mode, "single" | "failover") {
        text = format!("#! [Uplinks]\n#! Mode = {}\n", how.mode);
        if how.reorders() {
            text += "#! Reorder = yes\n";
        }
    }
    wireguard(&text, keys, 1, None)
}

/// The configuration file of end `own`, which begins with `head`. The end connects to the other one at `peer`; without
/// an address it listens.
pub(crate) fn wireguard(head: &str, keys: &[Keys; 2], own: usize, peer: Option<IpAddr>) -> String {
    let (private, public) = (&keys[own].private, &keys[1 - own].public);
    let (here, there) = (INNER[own], INNER[1 - own]);
    let (listens, calls) = match peer {
        Some(peer) => (String::new(), format!("Endpoint = {peer}:{PORT}\n")),
        None => (format!("ListenPort = {PORT}\n"), String::new()),
    };
    format!(
        "{head}[Interface]\nPrivateKey = {private}\nAddress = {here}/24\n{listens}\
         [Peer]\nPublicKey = {public}\nAllowedIPs = {there}/32\n{calls}"
    )
}

/// Makes the error of a task that failed.
pub(crate) fn failed(what: impl Into<String>) -> impl FnOnce(io::Error) -> LabError {
    let what = what.into();
    move |error| LabError::Load { what, error }
}

/// Waits until the branch reports that the peer answers on `count` lines.
fn wait_for_lines(branch: &Host, count: usize) -> Result<(), LabError> {
    let end = Instant::now() + PATIENCE;
    loop {
        let arguments = ["status", "branch", "--json", "--no-rate"];
        // A busy program may fail to answer; ask again.
        let text = branch.output(own_program(), arguments);
        let text = text.unwrap_or_else(|error| error.to_string());
        let status: Value = serde_json::from_str(&text).unwrap_or_default();
        let lines = status[0]["peers"][0]["lines"].as_array();
        let up = lines.map_or(0, |lines| {
            lines.iter().filter(|line| line["state"] == "up").count()
        });
        if up == count {
            return Ok(());
        }
        if Instant::now() >= end {
            let what = format!("wait for the uplinks of the branch: {text}");
            return Err(failed(what)(io::ErrorKind::TimedOut.into()));
        }
        thread::sleep(Duration::from_millis(100));
    }
}
