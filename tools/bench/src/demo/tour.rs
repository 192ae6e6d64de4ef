//! Demonstrates one contender between device and office: builds the site, uses it, measures, and removes it.

use std::time::{Duration, Instant};
use std::{io, thread};

use lab::cpu::{CpuMeter, usage};
use lab::load::{EchoServer, HttpLoad, HttpReport, HttpServer, HttpWatch, PingOptions, ping};
use lab::{Impairment, LabError, LinkOptions, Site, Tunnel};

use super::outcome::{Download, Outcome, SIZES};
use super::title;
use crate::bench::contender::Contender;
use crate::two_lines::failed;

/// Beginning of error messages about resource usage.
const USAGE: &str = "cannot read the programs' resource usage";
const WEB_PORT: u16 = 80;
const ECHO_PORT: u16 = 7;
/// How long a tunnel gets to answer for the first time.
const ANSWER: Duration = Duration::from_secs(40);
/// Interval between printed rates.
const EVERY: Duration = Duration::from_secs(1);

/// The settings of the tour, the same for every contender.
#[derive(Debug)]
pub(super) struct Tour {
    /// Seconds of load for each file size.
    pub seconds: u32,
    pub link: LinkOptions,
    pub line: Option<Impairment>,
}

impl Tour {
    /// Estimated time for one contender: a second for building, and a load for each file size.
    pub(super) fn time(&self) -> Duration {
        Duration::from_secs(1 + u64::from(self.seconds) * SIZES.len() as u64)
    }

    /// Demonstrates one contender.
    pub(super) fn take(&self, contender: Contender) -> Result<Outcome, LabError> {
        say("  building office, branch router and device");
        let site = Site::new(&self.link, self.line)?;
        let server = HttpServer::start(&site.office, ([0u8; 4], WEB_PORT).into())?;
        let mut target = site.office_outside();
        let mut outcome = Outcome::of(title(contender));
        let tunnel = match contender.carrier()? {
            None => {
                site.route_directly()?;
                None
            }
            Some(carrier) => {
                say("  starting a tunnel between branch and office");
                let tunnel = Tunnel::start(&carrier, site.tunnel_hosts(), site.tunnel())?;
                target = tunnel.options().inner(1);
                let start = tunnel.connect()?;
                let echo = EchoServer::start(&site.office, ECHO_PORT)?;
                let answer = echo.first_answer(&site.device, target, ANSWER)?;
                let answer = answer.ok_or_else(|| {
                    let what = format!("no answer came through the tunnel of {}", contender.name());
                    failed(what)(io::ErrorKind::TimedOut.into())
                })?;
                let elapsed = answer.saturating_duration_since(start);
                say(&format!(
                    "  first answer after {:.0} ms",
                    elapsed.as_secs_f64() * 1e3
                ));
                Some(tunnel)
            }
        };
        // End 0 is the branch, end 1 the office.
        let processes = tunnel
            .as_ref()
            .map_or_else(Vec::new, |tunnel| tunnel.processes().to_vec());

        let report = ping(&site.device, target, &PingOptions::count(200))?;
        outcome.ping = report.times.mean();
        let (lost, mean) = (report.sent - report.received.min(report.sent), outcome.ping);
        let micros = mean.as_secs_f64() * 1e6;
        say(&format!(
            "  ping: {micros:.0} us on average, {lost} of {} lost",
            report.sent
        ));

        for size in SIZES {
            let load = HttpLoad::new((target, WEB_PORT), size.bytes, u64::MAX);
            let meter = CpuMeter::start(&processes).map_err(failed(USAGE))?;
            let report = self.download(&site, &load, size.name)?;
            let used = meter.read().map_err(failed(USAGE))?;
            let cpu = (processes.len() == 2 && report.bytes > 0)
                .then(|| [0, 1].map(|end| used.seconds_per_gigabyte(end, report.bytes)));
            outcome.downloads.push(Download {
                bits_per_second: report.bits_per_second(),
                requests_per_second: report.requests_per_second(),
                cpu,
            });
        }
        if let &[branch, office] = processes.as_slice() {
            let rss = |process| usage(process).map(|usage| usage.rss).map_err(failed(USAGE));
            outcome.rss = Some([rss(branch)?, rss(office)?]);
        }
        drop(tunnel);
        drop(server);
        Ok(outcome)
    }

    /// Downloads files of one size for a while and prints the rate.
    fn download(&self, site: &Site, load: &HttpLoad, name: &str) -> Result<HttpReport, LabError> {
        let watch = HttpWatch::default();
        let time = Duration::from_secs(self.seconds.into());
        let report = thread::scope(|scope| {
            let run = scope.spawn(|| load.run_watched(&site.device, &watch));
            let end = Instant::now() + time;
            let mut before = (Instant::now(), 0, 0);
            while Instant::now() < end && !run.is_finished() {
                thread::sleep(EVERY.min(end.saturating_duration_since(Instant::now())));
                let now = (Instant::now(), watch.bytes(), watch.requests());
                let passed = (now.0 - before.0).as_secs_f64().max(1e-6);
                say(&format!(
                    "  files of {name}: {:6.0} Mbit/s, {:6.0} requests/s",
                    (now.1 - before.1) as f64 * 8e-6 / passed,
                    (now.2 - before.2) as f64 / passed
                ));
                before = now;
            }
            watch.stop();
            // The thread only panics if the lab does.
            run.join()
                .unwrap_or_else(|why| std::panic::resume_unwind(why))
        })?;
        // Print the overall rate, which the table repeats, and not that of the last interval.
        say(&format!(
            "  files of {name}: {:6.0} Mbit/s, {:6.0} requests/s in all",
            report.bits_per_second() / 1e6,
            report.requests_per_second()
        ));
        if report.errors > 0 {
            let why = report.first_error.unwrap_or_default();
            let what = format!("{} downloads of {name} failed", report.errors);
            return Err(failed(what)(io::Error::other(why)));
        }
        Ok(report)
    }
}

fn say(text: &str) {
    host::terminal::say(text);
}
