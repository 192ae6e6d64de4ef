//! `millrace demo uplinks`: a branch with two poor lines, a call beside a download, and a cable that is pulled.

mod call;
mod picture;

use std::io::{self, IsTerminal as _};
use std::thread;
use std::time::{Duration, Instant};

use clap::{Arg, ArgMatches, Command, value_parser};
use host::terminal::rough;
use lab::load::{HttpLoad, HttpServer, HttpWatch};
use lab::{Impairment, LabError};

use crate::bench::prepare;
use crate::two_lines::{INNER, TwoLines, Use, failed};
use call::Call;
use picture::{Shown, picture, table, words};

/// The branch's lines, the better one first.
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

const WEB_PORT: u16 = 80;
/// Time for building both ends and for the first answers on both lines.
const SETUP: Duration = Duration::from_secs(3);

/// One way to use the lines.
#[derive(Clone, Copy, Debug)]
struct Way {
    name: &'static str,
    how: Use,
    what: &'static str,
}

const WAYS: [Way; 7] = [
    Way {
        name: "dsl",
        how: Use::new("single", &[0]),
        what: "20 Mbit/s, 20 ms each way, 2 % loss",
    },
    Way {
        name: "lte",
        how: Use::new("single", &[1]),
        what: "10 Mbit/s, 40 ms each way and 10 more or less, 2 % loss in bursts",
    },
    Way {
        name: "failover",
        how: Use::new("failover", &[0, 1]),
        what: "the better uplink while it works",
    },
    Way {
        name: "critical",
        how: Use::new("critical", &[0, 1]),
        what: "the same, with small packets through both",
    },
    Way {
        name: "duplicate",
        how: Use::new("duplicate", &[0, 1]),
        what: "every packet through both",
    },
    Way {
        name: "balance",
        how: Use::new("balance", &[0, 1]),
        what: "each connection through one uplink",
    },
    Way {
        name: "packets",
        how: Use::new("balance-packets", &[0, 1]),
        what: "each packet of a download through one uplink, reordered on arrival",
    },
];

/// Builds the command's `clap` definition.
pub(super) fn command() -> Command {
    Command::new("uplinks")
        .about(
            "Show two poor uplinks: each alone, failover, copies, sharing; one is cut meanwhile",
        )
        .after_help(
            "A branch has two uplinks to its office, emulated in user space: `dsl` with 20 Mbit/s,\n20 ms and 2 % \
             loss, and `lte` with 10 Mbit/s, 40 ms that vary, and 2 % loss in\nbursts. A call (50 small packets per \
             second in each direction) runs beside a\ndownload through a WireGuard tunnel between two Millraces. In \
             the middle third of\nthe time `dsl` is cut. A table shows the call's losses and the download's \
             volume,\nand a line of blocks for each mode shows when.",
        )
        .arg(
            Arg::new("time")
                .long("seconds")
                .value_name("N")
                .default_value("12")
                .value_parser(value_parser!(u32).range(6..=60))
                .help("Seconds for each mode"),
        )
}

pub(super) fn demo(matches: &ArgMatches) -> Result<(), LabError> {
    prepare(&["wg"])?;
    let seconds = matches.get_one::<u32>("time").copied().unwrap_or(12);
    let time = Duration::from_secs(seconds.into());
    let total = (time + SETUP) * WAYS.len() as u32;
    host::terminal::say(format_args!(
        "demo: {} modes, about {} in all",
        WAYS.len(),
        rough(total)
    ));
    let mut shown = Vec::new();
    for (at, way) in WAYS.iter().enumerate() {
        let left = (time + SETUP) * (WAYS.len() - at) as u32;
        let rest = match io::stdout().is_terminal() {
            true => format!(", {} left", rough(left)),
            false => String::new(),
        };
        host::terminal::say(format_args!("demo: {} ({}){rest}", way.name, way.what));
        shown.push(show(way, time)?);
    }
    host::terminal::say(format_args!("\n{}", table(&shown).render()));
    host::terminal::say(picture(&shown));
    host::terminal::say(words());
    Ok(())
}

/// Builds both ends and the lines, uses the lines in one way, and removes everything.
fn show(way: &Way, time: Duration) -> Result<Shown, LabError> {
    let world = TwoLines::new(LINES, way.how)?;
    let (branch, office) = (&world.branch, &world.office);
    let _web = HttpServer::start(office, (INNER[1], WEB_PORT).into())?;
    let load = HttpLoad {
        // TCP may wait up to twice as long as the line was cut.
        patience: time * 2,
        ..HttpLoad::new((INNER[1].into(), WEB_PORT), 1_000_000, u64::MAX)
    };
    let watch = HttpWatch::default();
    let (packets, downloaded) = thread::scope(|scope| {
        // Nothing in between may return early: the download's thread would continue.
        let up = Call::start(branch, office, INNER[1], time)?;
        let down = Call::start(office, branch, INNER[0], time)?;
        let download = scope.spawn(|| load.run_watched(branch, &watch));
        let start = Instant::now();
        let wait = |part| {
            let at = start + time * part / 3;
            thread::sleep(at.saturating_duration_since(Instant::now()));
        };
        wait(1);
        world.cables[0].cut(true);
        wait(2);
        world.cables[0].cut(false);
        wait(3);
        let downloaded = watch.bytes();
        watch.abandon();
        let packets = [up.end()?, down.end()?];
        let report = download
            .join()
            .unwrap_or_else(|why| std::panic::resume_unwind(why))?;
        match report.first_error {
            Some(why) => {
                let what = format!("a download by {} failed", way.name);
                Err(failed(what)(io::Error::other(why)))
            }
            None => Ok((packets, downloaded)),
        }
    })?;
    Ok(Shown::new(way.name, time, &packets, downloaded))
}
