//! `millrace demo lines`: a branch with two poor lines, a call beside a download, and a cable that is pulled.

mod call;
mod picture;

use std::io::{self, IsTerminal as _};
use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Arg, ArgMatches, Command, value_parser};
use lab::load::{HttpLoad, HttpServer, HttpWatch};
use lab::openvpn::Directory;
use lab::peer::Keys;
use lab::{Emulator, Host, Impairment, LabError, LinkOptions, Process};
use netio::netlink::Route;
use serde_json::Value;
use terminal::rough;

use crate::bench::contender::own_program;
use crate::bench::prepare;
use call::Call;
use picture::{Shown, picture, table, words};

/// The branch's lines: the better one first.
const NAMES: [&str; 2] = ["dsl", "lte"];
const LINES: [Impairment; 2] = [
    Impairment {
        rate: Some(20_000_000),
        delay: Duration::from_millis(20),
        loss: 0.02,
        queue: 60_000,
        ..Impairment::NONE
    },
    Impairment {
        rate: Some(10_000_000),
        delay: Duration::from_millis(40),
        jitter: Duration::from_millis(10),
        loss: 0.02,
        burst: 4.0,
        queue: 40_000,
        ..Impairment::NONE
    },
];

/// Where the branch calls the office: an address that is on neither of the lines.
const OFFICE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
/// The ends of the tunnel.
const INNER: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 99, 0, 1), Ipv4Addr::new(10, 99, 0, 2)];
const PORT: u16 = 51820;
const WEB_PORT: u16 = 80;
/// How long a tunnel and its lines get to work.
const PATIENCE: Duration = Duration::from_secs(20);
/// Building, and the first answers on both lines.
const SETUP: Duration = Duration::from_secs(3);

/// One way to use the lines.
#[derive(Clone, Copy, Debug)]
struct Way {
    name: &'static str,
    mode: &'static str,
    /// Those that the file names.
    lines: &'static [usize],
    what: &'static str,
}

const WAYS: [Way; 7] = [
    Way {
        name: "dsl",
        mode: "single",
        lines: &[0],
        what: "20 Mbit/s, 20 ms each way, 2 % loss",
    },
    Way {
        name: "lte",
        mode: "single",
        lines: &[1],
        what: "10 Mbit/s, 40 ms each way and 10 more or less, 2 % loss in bursts",
    },
    Way {
        name: "failover",
        mode: "failover",
        lines: &[0, 1],
        what: "the better line while it works",
    },
    Way {
        name: "critical",
        mode: "critical",
        lines: &[0, 1],
        what: "the same, and small packets by both",
    },
    Way {
        name: "duplicate",
        mode: "duplicate",
        lines: &[0, 1],
        what: "every packet by both",
    },
    Way {
        name: "balance",
        mode: "balance",
        lines: &[0, 1],
        what: "each connection by one of them",
    },
    Way {
        name: "packets",
        mode: "balance-packets",
        lines: &[0, 1],
        what: "each packet of a download by one of them, put back into order",
    },
];

/// The command's own command line.
pub(super) fn command() -> Command {
    Command::new("lines")
        .about(
            "Show two poor lines: each by itself, failover, copies, sharing; one is cut meanwhile",
        )
        .after_help(
            "A branch has two lines to its office, emulated in user space: `dsl` with 20 Mbit/s,\n\
             20 ms and 2 % loss, and `lte` with 10 Mbit/s, 40 ms that vary, and 2 % loss in\n\
             bursts. A call (50 small packets a second in each direction) goes on beside a\n\
             download through a WireGuard tunnel between two Millraces. In the middle third of\n\
             the time `dsl` is cut. A table says what the call lost and what was downloaded,\n\
             and a line of blocks for each way shows when.",
        )
        .arg(
            Arg::new("time")
                .long("seconds")
                .value_name("N")
                .default_value("12")
                .value_parser(value_parser!(u32).range(6..=60))
                .help("Seconds for each way"),
        )
}

pub(super) fn demo(matches: &ArgMatches) -> Result<(), LabError> {
    prepare(&["wg"])?;
    let seconds = matches.get_one::<u32>("time").copied().unwrap_or(12);
    let time = Duration::from_secs(seconds.into());
    let mut shown = Vec::new();
    for (at, way) in WAYS.iter().enumerate() {
        let left = (time + SETUP) * (WAYS.len() - at) as u32;
        let rest = match io::stdout().is_terminal() {
            true => format!(", {} left", rough(left)),
            false => String::new(),
        };
        terminal::say(format_args!("demo: {} ({}){rest}", way.name, way.what));
        shown.push(show(way, time)?);
    }
    terminal::say(format_args!("\n{}", table(&shown).render()));
    terminal::say(picture(&shown));
    terminal::say(words());
    Ok(())
}

/// Builds both ends and the lines, uses them one way, and takes all away.
fn show(way: &Way, time: Duration) -> Result<Shown, LabError> {
    let (branch, office) = (Host::private("branch")?, Host::private("office")?);
    let cables = cables(&branch, &office)?;
    let directory = Directory::new()?;
    let keys = [Keys::generate(&branch)?, Keys::generate(&office)?];
    let files = [
        directory.file("branch.conf", branch_file(way, &keys))?,
        directory.file("office.conf", office_file(way, &keys))?,
    ];
    let mut ends: Vec<Process> = Vec::new();
    for (host, file) in [(&office, &files[1]), (&branch, &files[0])] {
        let command = host.command(own_program()).arg("up").arg(file);
        let mut process = command.spawn()?;
        process.wait_for_line("the tunnel", PATIENCE, |line| line.contains("is up"))?;
        ends.push(process);
    }
    wait_for_lines(&branch, way)?;

    let _web = HttpServer::start(&office, (INNER[1], WEB_PORT).into())?;
    let load = HttpLoad {
        // TCP waits up to twice as long as its line was cut.
        patience: time * 2,
        ..HttpLoad::new((INNER[1].into(), WEB_PORT), 1_000_000, u64::MAX)
    };
    let watch = HttpWatch::default();
    let (packets, downloaded) = thread::scope(|scope| {
        // Nothing that can fail comes between the begin of the download and its end: it would go on.
        let up = Call::start(&branch, &office, INNER[1], time)?;
        let down = Call::start(&office, &branch, INNER[0], time)?;
        let download = scope.spawn(|| load.run_watched(&branch, &watch));
        let start = Instant::now();
        let wait = |part| {
            let at = start + time * part / 3;
            thread::sleep(at.saturating_duration_since(Instant::now()));
        };
        wait(1);
        cables[0].cut(true);
        wait(2);
        cables[0].cut(false);
        wait(3);
        let downloaded = watch.bytes();
        watch.abandon();
        let packets = [up.end()?, down.end()?];
        let report = download
            .join()
            .unwrap_or_else(|why| std::panic::resume_unwind(why))?;
        match report.first_error {
            Some(why) => Err(LabError::Load {
                what: format!("a download by {} failed", way.name),
                error: io::Error::other(why),
            }),
            None => Ok((packets, downloaded)),
        }
    })?;
    Ok(Shown::new(way.name, time, &packets, downloaded))
}

/// The lines between branch and office, and the branch's routes by each.
fn cables(branch: &Host, office: &Host) -> Result<[Emulator; 2], LabError> {
    let links = [LinkOptions::numbered(1), LinkOptions::numbered(2)];
    let cable = |at: usize| {
        let (name, line) = (NAMES[at], [LINES[at]; 2]);
        Emulator::new(branch, name, office, name, &links[at], line, at as u64 + 1)
    };
    let cables = [cable(0)?, cable(1)?];
    office.add_address("lo", OFFICE.into(), 32)?;
    let mut netlink = branch.netlink()?;
    for (at, link) in links.iter().enumerate() {
        let failed = |error| LabError::Load {
            what: format!("cannot lead the branch to the office by {}", NAMES[at]),
            error,
        };
        let mut route = Route::new(OFFICE.into(), 32).via(link.b4());
        route.dev = Some(
            netlink
                .index_of(NAMES[at])
                .map_err(|e| failed(io::Error::other(e)))?,
        );
        route.metric = Some(at as u32 + 1);
        netlink
            .add_route(&route)
            .map_err(|e| failed(io::Error::other(e)))?;
    }
    Ok(cables)
}

fn branch_file(way: &Way, keys: &[Keys; 2]) -> String {
    let mut text = format!("#! [Lines]\n#! Mode = {}\n#! Hold = 2\n", way.mode);
    if reorders(way) {
        text += "#! Reorder = yes\n";
    }
    for line in way.lines {
        let (name, priority) = (NAMES[*line], line + 1);
        let rate = LINES[*line].rate.unwrap_or_default();
        text += &format!(
            "#! [Line]\n#! Name = {name}\n#! Interface = {name}\n#! Priority = {priority}\n#! Rate = {rate}\n"
        );
    }
    text + &format!(
        "[Interface]\nPrivateKey = {}\nAddress = {}/24\n[Peer]\nPublicKey = {}\nEndpoint = {OFFICE}:{PORT}\n\
         AllowedIPs = {}/32\n",
        keys[0].private, INNER[0], keys[1].public, INNER[1]
    )
}

fn office_file(way: &Way, keys: &[Keys; 2]) -> String {
    let mut text = String::new();
    if !matches!(way.mode, "single" | "failover") {
        text = format!("#! [Lines]\n#! Mode = {}\n", way.mode);
        if reorders(way) {
            text += "#! Reorder = yes\n";
        }
    }
    text + &format!(
        "[Interface]\nPrivateKey = {}\nListenPort = {PORT}\nAddress = {}/24\n[Peer]\nPublicKey = {}\n\
         AllowedIPs = {}/32\n",
        keys[1].private, INNER[1], keys[0].public, INNER[0]
    )
}

/// Whether packets of one connection come by several lines.
fn reorders(way: &Way) -> bool {
    matches!(way.mode, "duplicate" | "critical" | "balance-packets")
}

/// Waits until the branch says that the peer answers on all lines.
fn wait_for_lines(branch: &Host, way: &Way) -> Result<(), LabError> {
    let end = Instant::now() + PATIENCE;
    loop {
        let arguments = ["status", "branch", "--json", "--no-rate"];
        let text = branch.output(own_program(), arguments)?;
        let status: Value = serde_json::from_str(&text).unwrap_or_default();
        let lines = status[0]["peers"][0]["lines"].as_array();
        let up = lines.map_or(0, |lines| {
            lines.iter().filter(|line| line["state"] == "up").count()
        });
        if up == way.lines.len() {
            return Ok(());
        }
        if Instant::now() >= end {
            return Err(LabError::Load {
                what: format!("wait for the lines of the branch: {text}"),
                error: io::ErrorKind::TimedOut.into(),
            });
        }
        thread::sleep(Duration::from_millis(100));
    }
}
