//! Two hosts, a tunnel between them, and the tests that run on it.

use std::path::Path;
use std::time::Duration;
use std::{io, thread};

use lab::cpu::{CpuMeter, CpuReport, usage};
use lab::load::{
    Direction, EchoServer, HttpLoad, HttpServer, Iperf, IperfServer, LossFree, PingOptions,
    PingReport, UDP_QUIET, UdpLoad, highest_loss_free, ping, udp_load,
};
use lab::{Host, LabError, Link, LinkOptions, Offloads, Tunnel, TunnelOptions};

use super::contender::Contender;
use super::test::{Metric, Test};
use crate::two_lines::failed;

/// How long a tunnel gets to answer for the first time.
const ANSWER: Duration = Duration::from_secs(40);
/// Interval between pings under load.
const PING_EVERY: Duration = Duration::from_millis(5);
/// Head start of a load before the pings: TCP starts slowly.
const RAMP: Duration = Duration::from_millis(300);
const ECHO_PORT: u16 = 7;
const IPERF_PORT: u16 = 5201;
const UDP_PORT: u16 = 9000;
const HTTP_PORT: u16 = 80;
/// Size of a downloaded file, in bytes.
const HTTP_SIZE: u64 = 1_000_000;

/// Why a test has no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum RigError {
    /// The lab failed.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// Processor time or memory could not be read, for example because a process ended.
    #[error("cannot read what the processes used: {0}")]
    Usage(#[from] io::Error),
    /// Nothing came through the tunnel.
    #[error("no answer through the tunnel within {ANSWER:?}")]
    Silent,
}

/// The two hosts of one implementation.
#[derive(Debug)]
pub(super) struct Ground {
    a: Host,
    b: Host,
    link: LinkOptions,
}

impl Ground {
    /// Makes two hosts and a cable between them.
    pub(super) fn new(offloads: Offloads) -> Result<Self, LabError> {
        let (a, b) = (Host::private("a")?, Host::private("b")?);
        let link = LinkOptions::numbered(1).offloads(offloads);
        Link::new(&a, "eth0", &b, "eth0", &link)?;
        Ok(Self { a, b, link })
    }
}

/// Implementation that is running.
#[derive(Debug)]
pub(super) struct Rig<'g> {
    pub contender: Contender,
    other: Option<&'g Path>,
    ground: &'g Ground,
    tunnel: Option<Tunnel<'g>>,
    target: std::net::IpAddr,
    echo: EchoServer,
    iperf: IperfServer,
}

/// The length and size of the loads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Effort {
    /// Length of each load, in seconds.
    pub seconds: u32,
    /// Number of files to fetch over HTTP.
    pub requests: u64,
}

type Values = Vec<(Metric, f64)>;

impl<'g> Rig<'g> {
    /// Starts an implementation and waits until it carries packets.
    /// `other` is another build of this program, for contenders that need one.
    ///
    /// # Errors
    /// [`RigError::Lab`] if the implementation cannot be started, [`RigError::Silent`].
    pub(super) fn new(
        contender: Contender,
        ground: &'g Ground,
        other: Option<&'g Path>,
    ) -> Result<Self, RigError> {
        let hosts = [&ground.a, &ground.b];
        let echo = EchoServer::start(&ground.b, ECHO_PORT)?;
        let mut target = ground.link.b4();
        let tunnel = match contender.carrier_beside(other)? {
            None => None,
            Some(carrier) => {
                let options = TunnelOptions::over(&ground.link, 9);
                let tunnel = Tunnel::start(&carrier, hosts, options)?;
                target = tunnel.options().inner(1);
                tunnel.connect()?;
                Some(tunnel)
            }
        };
        echo.first_answer(&ground.a, target, ANSWER)?
            .ok_or(RigError::Silent)?;
        let iperf = IperfServer::start(&ground.b, target, IPERF_PORT)?;
        Ok(Self {
            contender,
            other,
            ground,
            tunnel,
            target,
            echo,
            iperf,
        })
    }

    /// Runs one test. The result is empty if the test makes no sense without a tunnel.
    pub(super) fn measure(&self, test: Test, effort: Effort) -> Result<Values, RigError> {
        // The session may have expired during other measurements; renew it before the clock starts.
        self.echo
            .first_answer(&self.ground.a, self.target, ANSWER)?
            .ok_or(RigError::Silent)?;
        let tcp = |streams, direction| Iperf {
            streams,
            direction,
            seconds: effort.seconds,
            ..Iperf::default()
        };
        match test {
            Test::Setup => self.set_up(),
            Test::Ping => self.idle(effort),
            Test::Tcp1 => self.tcp(&tcp(1, Direction::Forward)),
            Test::Tcp1Back => self.tcp(&tcp(1, Direction::Reverse)),
            Test::Tcp4 => self.tcp(&tcp(4, Direction::Forward)),
            Test::Tcp4Both => self.tcp(&tcp(4, Direction::Both)),
            Test::Udp1300 => self.udp(1300, effort),
            Test::Udp64 => self.udp(64, effort),
            Test::PingLoaded => self.loaded(&tcp(1, Direction::Forward), effort),
            Test::Http => self.http(effort),
            Test::Memory => self.memory(),
        }
    }

    fn processes(&self) -> Vec<u32> {
        self.tunnel
            .as_ref()
            .map_or_else(Vec::new, |tunnel| tunnel.processes().to_vec())
    }

    /// Measures a second pair of processes, from nothing to the first answer.
    fn set_up(&self) -> Result<Values, RigError> {
        let Some(carrier) = self.contender.carrier_beside(self.other)? else {
            return Ok(Values::new());
        };
        let ground = self.ground;
        let options = TunnelOptions {
            interface: "wg1".to_owned(),
            port: 51_821,
            ..TunnelOptions::over(&ground.link, 8)
        };
        let tunnel = Tunnel::start(&carrier, [&ground.a, &ground.b], options)?;
        let target = tunnel.options().inner(1);
        let start = tunnel.connect()?;
        let answer = self
            .echo
            .first_answer(&ground.a, target, ANSWER)?
            .ok_or(RigError::Silent)?;
        let (rss, _) = biggest(&tunnel.processes())?;
        let elapsed = answer.saturating_duration_since(start);
        Ok(vec![
            (Metric::SetUp, elapsed.as_secs_f64() * 1e3),
            (Metric::Rss, rss),
        ])
    }

    fn memory(&self) -> Result<Values, RigError> {
        let processes = self.processes();
        if processes.is_empty() {
            return Ok(Values::new());
        }
        let (rss, peak) = biggest(&processes)?;
        Ok(vec![(Metric::Rss, rss), (Metric::RssPeak, peak)])
    }

    fn idle(&self, effort: Effort) -> Result<Values, RigError> {
        let options = PingOptions::count(300 * effort.seconds);
        times(&ping(&self.ground.a, self.target, &options)?)
    }

    fn loaded(&self, iperf: &Iperf, effort: Effort) -> Result<Values, RigError> {
        let time = Duration::from_secs(effort.seconds.into()).saturating_sub(2 * RAMP);
        let count = time.as_millis() / PING_EVERY.as_millis();
        let options = PingOptions {
            interval: Some(PING_EVERY),
            ..PingOptions::count(u32::try_from(count).unwrap_or(u32::MAX).max(1))
        };
        thread::scope(|scope| {
            let load = scope.spawn(|| iperf.run(&self.ground.a, &self.iperf));
            thread::sleep(RAMP);
            let report = ping(&self.ground.a, self.target, &options);
            // The thread only panics if the lab does.
            let carried = load
                .join()
                .unwrap_or_else(|why| std::panic::resume_unwind(why))?;
            let mut values = times(&report?)?;
            values.push((Metric::Rate, carried.bits_per_second() / 1e6));
            Ok(values)
        })
    }

    fn tcp(&self, iperf: &Iperf) -> Result<Values, RigError> {
        let meter = CpuMeter::start(&self.processes())?;
        let report = iperf.run(&self.ground.a, &self.iperf)?;
        let used = meter.read()?;
        let mut values = vec![(Metric::Rate, report.bits_per_second() / 1e6)];
        values.extend(cost(
            &used,
            report.bytes(),
            iperf.direction == Direction::Reverse,
        ));
        Ok(values)
    }

    fn http(&self, effort: Effort) -> Result<Values, RigError> {
        let _server = HttpServer::start(&self.ground.b, (self.target, HTTP_PORT).into())?;
        // Verifying content costs processor time, but none of the tunnel's processes.
        let load = HttpLoad {
            verify: false,
            ..HttpLoad::new((self.target, HTTP_PORT), HTTP_SIZE, effort.requests)
        };
        let meter = CpuMeter::start(&self.processes())?;
        let report = load.run(&self.ground.a)?;
        let used = meter.read()?;
        if let Some(why) = report.first_error {
            return Err(failed("fetch files")(io::Error::other(why)).into());
        }
        let mut values = vec![
            (Metric::Kbytes, report.bits_per_second() / 8.0 / 1024.0),
            (Metric::Requests, report.requests_per_second()),
        ];
        values.extend(cost(&used, report.bytes, true));
        Ok(values)
    }

    fn udp(&self, size: usize, effort: Effort) -> Result<Values, RigError> {
        let search = LossFree {
            trial: Duration::from_secs(effort.seconds.into()) / 6,
            ..LossFree::default()
        };
        let processes = self.processes();
        let mut trials: Vec<(u64, CpuReport)> = Vec::new();
        let best = highest_loss_free::<RigError>(&search, |rate, duration| {
            let load = UdpLoad {
                target: (self.target, UDP_PORT).into(),
                size,
                rate,
                duration,
                quiet: UDP_QUIET,
            };
            let meter = CpuMeter::start(&processes)?;
            let report = udp_load(&self.ground.a, &self.ground.b, &load)?;
            trials.push((report.received, meter.read()?));
            Ok(report)
        })?;
        let mut values = vec![
            (Metric::Packets, best.received_rate() / 1e3),
            (Metric::Rate, best.received_rate() * size as f64 * 8.0 / 1e6),
            (Metric::Loss, best.loss() * 100.0),
        ];
        let used = trials
            .iter()
            .find(|(received, _)| *received == best.received && *received > 0);
        if let Some((received, used)) = used {
            values.extend(cost(used, received * size as u64, false));
        }
        Ok(values)
    }
}

/// Processor time by the direction of the payload. With both directions at once, end `a` counts as sending.
fn cost(used: &CpuReport, bytes: u64, reverse: bool) -> Values {
    let mut values = vec![(Metric::Busy, used.busy), (Metric::Stolen, used.steal)];
    if used.processes.len() == 2 && bytes > 0 {
        let (send, receive) = if reverse { (1, 0) } else { (0, 1) };
        values.push((Metric::CpuSend, used.seconds_per_gigabyte(send, bytes)));
        values.push((
            Metric::CpuReceive,
            used.seconds_per_gigabyte(receive, bytes),
        ));
    }
    values
}

fn times(report: &PingReport) -> Result<Values, RigError> {
    if report.times.is_empty() {
        return Err(RigError::Silent);
    }
    let microseconds = |time: Duration| time.as_secs_f64() * 1e6;
    let lost = report.sent.saturating_sub(report.received);
    Ok(vec![
        (Metric::Mean, microseconds(report.times.mean())),
        (Metric::P99, microseconds(report.times.quantile(0.99))),
        (
            Metric::Loss,
            f64::from(lost) * 100.0 / f64::from(report.sent.max(1)),
        ),
    ])
}

/// Memory of the largest of some processes, in MB: current and peak.
fn biggest(processes: &[u32]) -> io::Result<(f64, f64)> {
    let mut most = (0, 0);
    for process in processes {
        let usage = usage(*process)?;
        most = (most.0.max(usage.rss), most.1.max(usage.rss_peak));
    }
    Ok((most.0 as f64 / 1e6, most.1 as f64 / 1e6))
}
