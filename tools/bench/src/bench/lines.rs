//! `millrace bench --uplinks`: one TCP stream over a line with varying delay, with and without Millrace restoring the
//! packet order; and over two lines at once.

mod bloat;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use host::machine::Machine;
use lab::load::{EchoServer, Iperf, IperfServer};
use lab::openvpn::{Credentials, Directory, KeyKind, MillraceOpenVpn, OpenVpn, Setup};
use lab::peer::Keys;
use lab::{Emulator, Host, Impairment, LabError, LinkOptions, Process};

use super::contender::own_program;
use super::rig::RigError;
use super::table::{Table, Verdicts};
use crate::bench::table::{Spread, number};
use crate::two_lines::{INNER, TwoLines, Use, wireguard};

named! {
    /// A part of the measurements, with its name for `--uplinks`.
    Part {
        /// One stream over one line.
        One = "one",
        /// One stream over two lines.
        Two = "two",
        /// Pings beside streams that fill the line.
        Full = "full",
    }
}

/// How long a tunnel gets to come up and to answer.
const PATIENCE: Duration = Duration::from_secs(20);
const ECHO_PORT: u16 = 7;
const IPERF_PORT: u16 = 5201;

/// The targets: fraction of the rate without a tunnel, on a line with jitter; Mbit/s of one stream over both lines;
/// multiple of the better line's rate when one line loses packets.
const TARGETS: [f64; 3] = [0.9, 135.0, 1.2];

/// Targets on a full line: fraction of the unshaped tunnel's rate, and multiple of the round trip time with a fair
/// queue.
const SHAPED: [f64; 2] = [0.95, 1.3];

/// A line, and TCP's buffer at both ends in bytes.
struct Path {
    delay: u64,
    jitter: u64,
    memory: u32,
}

/// The paths on which the sequence window was measured for the Linux kernel's PPTP.
const PATHS: [Path; 7] = [
    path(0, 0, 256 << 10),
    path(3, 0, 256 << 10),
    path(3, 1, 256 << 10),
    path(200, 0, 256 << 10),
    path(200, 50, 256 << 10),
    path(200, 0, 8 << 20),
    path(200, 50, 8 << 20),
];

const fn path(delay: u64, jitter: u64, memory: u32) -> Path {
    Path {
        delay,
        jitter,
        memory,
    }
}

impl Path {
    fn name(&self) -> String {
        let varies = match self.jitter {
            0 => String::new(),
            jitter => format!(" ± {jitter}"),
        };
        let memory = match self.memory >> 10 {
            kilo @ ..1024 => format!("{kilo} KiB"),
            kilo => format!("{} MiB", kilo >> 10),
        };
        format!("{}{varies} ms, {memory}", self.delay)
    }

    fn line(&self) -> Impairment {
        Impairment {
            jitter: Duration::from_millis(self.jitter),
            ..Impairment::delay(Duration::from_millis(self.delay))
        }
    }

    /// One stream, with Reno: Linux's CUBIC ends its slow start when round trips grow (HyStart). With jitter they grow
    /// at random moments, most of all when packets are put in order, so results would vary.
    fn stream(&self, seconds: u32) -> Iperf {
        let far = self.delay >= 100;
        Iperf {
            seconds,
            omit: if far { BEGINNING } else { 0 },
            congestion: "reno",
            ..Iperf::default()
        }
    }
}

/// The program that carries the stream over one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carrier {
    Nothing,
    WireGuard { reorder: bool },
    OpenVpn { reorder: bool },
    Pptp { reorder: bool },
}

const CARRIERS: [Carrier; 7] = [
    Carrier::Nothing,
    Carrier::WireGuard { reorder: false },
    Carrier::WireGuard { reorder: true },
    Carrier::OpenVpn { reorder: false },
    Carrier::OpenVpn { reorder: true },
    Carrier::Pptp { reorder: false },
    Carrier::Pptp { reorder: true },
];

impl Carrier {
    const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "no tunnel",
            Self::WireGuard { reorder: false } => "WireGuard",
            Self::WireGuard { reorder: true } => "WireGuard in order",
            Self::OpenVpn { reorder: false } => "OpenVPN",
            Self::OpenVpn { reorder: true } => "OpenVPN in order",
            Self::Pptp { reorder: false } => "PPTP",
            Self::Pptp { reorder: true } => "PPTP in order",
        }
    }

    /// The configuration files of both ends for `millrace up`, the caller's first.
    fn files(
        self,
        hosts: [&Host; 2],
        at: IpAddr,
        directory: &Directory,
    ) -> Result<Option<[PathBuf; 2]>, LabError> {
        let (names, texts) = match self {
            Self::Nothing | Self::OpenVpn { .. } => return Ok(None),
            Self::WireGuard { reorder } => {
                let keys = [Keys::generate(hosts[0])?, Keys::generate(hosts[1])?];
                let lines = match reorder {
                    true => "#! [Uplinks]\n#! Reorder = yes\n",
                    false => "",
                };
                let text = |own, peer| wireguard(lines, &keys, own, peer);
                (["a.conf", "b.conf"], [text(0, Some(at)), text(1, None)])
            }
            Self::Pptp { reorder } => {
                let both = format!(
                    "protocol = \"pptp\"\nallow-insecure = \"pptp\"\nreorder = {reorder}\n"
                );
                let calls = format!(
                    "{both}server = \"{at}\"\nusername = \"a\"\npassword = \"bench\"\ninterface = \"a\"\n"
                );
                let answers = format!(
                    "{both}listen = \"0.0.0.0\"\naddress = \"{}/24\"\ninterface = \"b\"\n[users]\na = \"bench\"\n",
                    INNER[1]
                );
                (["a.toml", "b.toml"], [calls, answers])
            }
        };
        let [a, b] = texts;
        Ok(Some([
            directory.file(names[0], a)?,
            directory.file(names[1], b)?,
        ]))
    }
}

/// Starts a program that brings a tunnel up, and waits until it is up.
fn up(host: &Host, file: &PathBuf) -> Result<Process, LabError> {
    let mut process = host.command(own_program()).arg("up").arg(file).spawn()?;
    process.wait_for_line("the tunnel", PATIENCE, |line| line.contains("is up"))?;
    Ok(process)
}

/// Waits until a host answers through the tunnel.
fn answers([a, b]: [&Host; 2], target: IpAddr) -> Result<(), RigError> {
    let echo = EchoServer::start(b, ECHO_PORT)?;
    echo.first_answer(a, target, PATIENCE)?
        .ok_or(RigError::Silent)?;
    Ok(())
}

/// Measures one stream from `a` to `b`, in Mbit/s.
fn stream([a, b]: [&Host; 2], target: IpAddr, iperf: Iperf) -> Result<f64, RigError> {
    answers([a, b], target)?;
    let server = IperfServer::start(b, target, IPERF_PORT)?;
    Ok(iperf.run(a, &server)?.bits_per_second() / 1e6)
}

/// Measures one stream over one line, in Mbit/s.
fn over_one(path: &Path, carrier: Carrier, seconds: u32) -> Result<f64, RigError> {
    let iperf = path.stream(seconds);
    let (a, b) = (Host::private("a")?, Host::private("b")?);
    let memory = format!("4096 131072 {}", path.memory);
    for host in [&a, &b] {
        host.sysctl("net/ipv4/tcp_rmem", &memory)?;
        host.sysctl("net/ipv4/tcp_wmem", &memory)?;
    }
    let link = LinkOptions::numbered(1);
    let _line = Emulator::new(&a, "eth0", &b, "eth0", &link, [path.line(); 2], 1)?;
    if let Carrier::OpenVpn { reorder } = carrier {
        return over_openvpn([&a, &b], link.b4(), reorder, iperf);
    }
    let directory = Directory::new()?;
    let Some([calls, answers]) = carrier.files([&a, &b], link.b4(), &directory)? else {
        return stream([&a, &b], link.b4(), iperf);
    };
    let _b = up(&b, &answers)?;
    let _a = up(&a, &calls)?;
    stream([&a, &b], INNER[1].into(), iperf)
}

/// Measures one stream through OpenVPN, in Mbit/s.
fn over_openvpn(
    [a, b]: [&Host; 2],
    at: IpAddr,
    reorder: bool,
    iperf: Iperf,
) -> Result<f64, RigError> {
    let mut setup = Setup::default();
    if reorder {
        setup.server.line("reorder");
        setup.client.line("reorder");
    }
    let program = MillraceOpenVpn::new(own_program());
    let credentials = Credentials::new(KeyKind::Ecdsa)?;
    let _server = program.start(b, &setup.server_file(&program, &credentials, at)?)?;
    let _client = program.start(a, &setup.client_file(&program, &credentials, at)?)?;
    stream([a, b], setup.inner4(1), iperf)
}

/// Two lines of 100 Mbit/s with 10 ms and 50 Mbit/s with 40 ms, each with room for 50 ms.
fn pair(loss: [f64; 2]) -> [Impairment; 2] {
    let line = |rate: u64, delay, loss| Impairment {
        rate: Some(rate * 1_000_000),
        loss,
        queue: rate as usize * 6250,
        ..Impairment::delay(Duration::from_millis(delay))
    };
    [line(100, 10, loss[0]), line(50, 40, loss[1])]
}

/// The ways to use the two lines.
const USES: [(&str, Use); 3] = [
    ("first uplink", Use::new("single", &[0])),
    ("second uplink", Use::new("single", &[1])),
    ("balance-packets", Use::new("balance-packets", &[0, 1])),
];

/// Seconds that TCP gets to find the rate of a long line, or of two lines, of which the first packets use only one.
const BEGINNING: u32 = 10;

/// Losses in percent on the first and the second line.
const LOSSES: [[u32; 2]; 3] = [[0, 0], [1, 0], [0, 1]];

/// Measures one stream over two lines, in Mbit/s.
fn over_two(
    loss: [u32; 2],
    how: Use,
    congestion: &'static str,
    seconds: u32,
) -> Result<f64, RigError> {
    let lines = pair(loss.map(|percent| f64::from(percent) / 100.0));
    let world = TwoLines::new(lines, how)?;
    let hosts = [&world.branch, &world.office];
    let iperf = Iperf {
        omit: BEGINNING,
        congestion,
        seconds,
        ..Iperf::default()
    };
    stream(hosts, INNER[1].into(), iperf)
}

/// The medians of several measurements, which take turns in each repetition.
fn medians(
    repetitions: u32,
    measurements: &[impl Fn() -> Result<f64, RigError>],
) -> Result<Vec<f64>, RigError> {
    let mut values = vec![Vec::new(); measurements.len()];
    for _ in 0..repetitions {
        for (values, measure) in values.iter_mut().zip(measurements) {
            values.push(measure()?);
        }
    }
    let median = |values| Spread::of(values).map_or(0.0, |it| it.median);
    Ok(values.into_iter().map(median).collect())
}

/// The congestion controls to measure that this kernel has.
fn congestions() -> Vec<&'static str> {
    let path = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let known = std::fs::read_to_string(path).unwrap_or_default();
    let there = |name: &&str| known.split_whitespace().any(|word| word == *name);
    ["cubic", "bbr"].into_iter().filter(there).collect()
}

/// Measures the given parts and returns the report.
///
/// # Errors
/// [`RigError`] if a network cannot be built or a host does not answer.
pub(super) fn measure(parts: &[Part], repetitions: u32, seconds: u32) -> Result<String, RigError> {
    let mut verdicts = Verdicts::default();
    let mut report = format!(
        "# millrace bench --uplinks\n\n{}.\n\nMbit/s of TCP for {seconds} s between two Millraces, medians of \
         {repetitions}. Both ends, the load and the uplinks, which are emulated in user space, share this machine.\n\n",
        Machine::this().show()
    );
    for part in parts {
        let (text, table) = match part {
            Part::One => (ONE, one_line(repetitions, seconds, &mut verdicts)?),
            Part::Two => (TWO, two_lines(repetitions, seconds, &mut verdicts)?),
            Part::Full => (FULL, full_line(repetitions, seconds, &mut verdicts)?),
        };
        report += &format!("{text}\n\n{}\n", table.render());
    }
    Ok(report + &verdicts.render())
}

const ONE: &str = "## One uplink\n\nOne stream, reno. Delay each way, and the most memory of TCP's buffers. *In order*: \
                   packets that overtook others are put back. With 200 ms the first 10 s do not count.";
const TWO: &str = "## Two uplinks\n\nOne stream. 100 Mbit/s with 10 ms and 50 Mbit/s with 40 ms each way: each by itself, \
                   and each packet by one of them. The first 10 s do not count.";
const FULL: &str = "## An uplink that is full\n\n5 Mbit/s up and 20 down, 10 ms each way, with a queue of 300 ms; eight \
                    streams, cubic. Mbit/s of them together, and milliseconds that one of a hundred pings takes longer \
                    than. *FQ-CoDel*: the uplink's queue is fair. *Shaped*: both ends of the tunnel know the rates \
                    (`Shape = yes`).";

/// Measures one stream over one line, with each carrier.
fn one_line(repetitions: u32, seconds: u32, verdicts: &mut Verdicts) -> Result<Table, RigError> {
    // Carriers with PPTP come last.
    let carriers = match cfg!(feature = "pptp") {
        true => &CARRIERS[..],
        false => &CARRIERS[..5],
    };
    let names = carriers.iter().map(|carrier| carrier.name());
    let mut one = Table::new(std::iter::once("").chain(names));
    for path in &PATHS {
        let name = path.name();
        host::terminal::note(format_args!("bench: {name}"));
        let measure = |carrier: &Carrier| {
            let carrier = *carrier;
            move || over_one(path, carrier, seconds)
        };
        let measure: Vec<_> = carriers.iter().map(measure).collect();
        let values = medians(repetitions, &measure)?;
        let cells = values.iter().map(|value| number(*value));
        one.row(std::iter::once(name.clone()).chain(cells));
        if path.jitter > 0 {
            for (carrier, value) in carriers.iter().zip(&values) {
                let protocol = match carrier {
                    Carrier::WireGuard { reorder: true } => "WireGuard",
                    Carrier::OpenVpn { reorder: true } => "OpenVPN",
                    Carrier::Pptp { reorder: true } => "PPTP",
                    _ => continue,
                };
                let what = format!("{name}: {protocol} with reordering, relative to no tunnel");
                verdicts.at_least(what, TARGETS[0], value / values[0].max(1e-9));
            }
        }
    }

    Ok(one)
}

/// Measures one stream over two lines.
fn two_lines(repetitions: u32, seconds: u32, verdicts: &mut Verdicts) -> Result<Table, RigError> {
    let [_, both, of_better] = TARGETS;
    let mut two = Table::new([
        "",
        "first uplink",
        "second uplink",
        "balance-packets",
        "ratio",
    ]);
    for congestion in congestions() {
        for loss in LOSSES {
            let name = match loss {
                [0, 0] => format!("{congestion}, no loss"),
                [first, 0] => format!("{congestion}, {first} % loss on the first"),
                [_, second] => format!("{congestion}, {second} % loss on the second"),
            };
            host::terminal::note(format_args!("bench: two uplinks, {name}"));
            let measure = USES.map(|(_, how)| move || over_two(loss, how, congestion, seconds));
            let values = medians(repetitions, &measure)?;
            let better = values[0].max(values[1]).max(1e-9);
            let ratio = values[2] / better;
            let cells = values.iter().chain([&ratio]).map(|value| number(*value));
            two.row(std::iter::once(name.clone()).chain(cells));
            match loss {
                [0, 0] => {
                    verdicts.at_least(format!("both uplinks, {name}: Mbit/s"), both, values[2]);
                }
                _ => verdicts.at_least(
                    format!("both uplinks, {name}: of the better"),
                    of_better,
                    ratio,
                ),
            }
        }
    }
    Ok(two)
}

/// Measures pings on a line that eight streams fill.
fn full_line(repetitions: u32, seconds: u32, verdicts: &mut Verdicts) -> Result<Table, RigError> {
    let mut table = Table::new(std::iter::once("").chain(bloat::WAYS.map(|(name, _)| name)));
    for (name, direction) in bloat::DIRECTIONS {
        host::terminal::note(format_args!("bench: an uplink that is full, {name}"));
        let mut filled = vec![Vec::new(); bloat::WAYS.len()];
        for _ in 0..repetitions {
            for (filled, (_, way)) in filled.iter_mut().zip(bloat::WAYS) {
                filled.push(bloat::fill(way, direction, seconds)?);
            }
        }
        let median = |of: fn(&bloat::Filled) -> f64| -> Vec<f64> {
            let median = |all: &Vec<_>| {
                let values: Vec<f64> = all.iter().map(of).collect();
                Spread::of(values).map_or(0.0, |it| it.median)
            };
            filled.iter().map(median).collect()
        };
        let (rates, pings) = (median(|it| it.rate), median(|it| it.ping));
        for (what, values) in [("Mbit/s", &rates), ("ping p99, ms", &pings)] {
            let cells = values.iter().map(|value| number(*value));
            table.row(std::iter::once(format!("{name}: {what}")).chain(cells));
        }
        let [_, fair, plain, shaped] = [0, 1, 2, 3];
        verdicts.at_least(
            format!("{name}: shaped, of the rate of a tunnel that is not"),
            SHAPED[0],
            rates[shaped] / rates[plain].max(1e-9),
        );
        verdicts.at_most(
            format!("{name}: shaped, ping p99 of FQ-CoDel without a tunnel"),
            SHAPED[1],
            pings[shaped] / pings[fair].max(1e-9),
        );
    }
    Ok(table)
}
