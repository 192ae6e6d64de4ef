//! `ping`, with every round trip time.

use std::net::IpAddr;
use std::time::Duration;

use super::Times;
use crate::{Host, LabError, tools};

/// Settings of a ping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PingOptions {
    /// Number of requests.
    pub count: u32,
    /// Bytes of data in each request.
    pub size: u32,
    /// Time between requests. `None` sends each request as soon as the previous one was answered.
    pub interval: Option<Duration>,
    /// How long to wait for the last answers, in whole seconds, at least one.
    pub wait: Duration,
    /// Whether routers may fragment the packets.
    pub fragment: bool,
    /// The firewall mark of the requests.
    pub mark: Option<u32>,
}

impl Default for PingOptions {
    fn default() -> Self {
        Self {
            count: 10,
            size: 56,
            interval: None,
            wait: Duration::from_secs(1),
            fragment: true,
            mark: None,
        }
    }
}

impl PingOptions {
    /// Options for `count` requests, each sent as soon as the previous one was answered.
    pub fn count(count: u32) -> Self {
        Self {
            count,
            ..Self::default()
        }
    }
}

/// The results of a ping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PingReport {
    /// Requests sent.
    pub sent: u32,
    /// Distinct requests that were answered.
    pub received: u32,
    /// Duplicate answers.
    pub duplicates: u32,
    /// Round trip times.
    pub times: Times,
    /// ICMP errors from routers ("Destination Host Unreachable").
    pub complaints: Vec<String>,
}

impl PingReport {
    /// Whether every request was answered.
    pub fn is_perfect(&self) -> bool {
        self.received == self.sent
    }
}

/// Pings `target` from `host`. If nobody answers, the report says so; that is not an error.
///
/// # Errors
/// [`LabError::Missing`] without `ping`, [`LabError::Failed`] if it cannot run at all.
pub fn ping(host: &Host, target: IpAddr, options: &PingOptions) -> Result<PingReport, LabError> {
    let program = tools::find("ping")?;
    let mut command = host
        .command(program)
        .args(["-n", "-D"])
        .args(["-c", &options.count.to_string()])
        .args(["-s", &options.size.to_string()])
        .args(["-W", &options.wait.as_secs().max(1).to_string()])
        .env("LC_ALL", "C");
    command = match options.interval {
        Some(interval) => command.args(["-i", &format!("{:.3}", interval.as_secs_f64())]),
        None => command.arg("-A"),
    };
    if !options.fragment {
        command = command.args(["-M", "do"]);
    }
    if let Some(mark) = options.mark {
        command = command.args(["-m", &mark.to_string()]);
    }
    let exit = command.arg(target.to_string()).exit()?;
    // Status 1 means "no answer"; any other status is ping's own failure, such as "network is unreachable".
    match (exit.status.code(), parse(&exit.stdout)) {
        (Some(0 | 1), Some(report)) => Ok(report),
        (Some(0 | 1), None) => Err(LabError::Report {
            program: "ping".to_owned(),
            reason: "no summary".to_owned(),
            output: exit.stdout,
        }),
        _ => exit.success().map(|output| PingReport {
            sent: 0,
            received: 0,
            duplicates: 0,
            times: Times::default(),
            complaints: vec![output],
        }),
    }
}

/// Reads lines such as `[1.5] 64 bytes from 10.0.0.1: icmp_seq=1 ttl=64 time=0.031 ms`, and the summary
/// `10 packets transmitted, 9 received, +1 duplicates, 10% packet loss, time 9ms`.
fn parse(output: &str) -> Option<PingReport> {
    let mut times = Vec::new();
    let mut duplicates = 0;
    let mut complaints = Vec::new();
    let mut summary = None;
    for line in output.lines() {
        if let Some(time) = line
            .split("time=")
            .nth(1)
            .filter(|_| line.contains("_seq="))
        {
            if line.contains("(DUP!)") {
                duplicates += 1;
                continue;
            }
            let ms: f64 = time.split_whitespace().next()?.parse().ok()?;
            times.push(Duration::try_from_secs_f64(ms / 1000.0).ok()?);
        } else if line.contains("_seq=") {
            complaints.push(line.to_owned());
        } else if line.contains("packets transmitted") {
            let mut parts = line.split(',');
            let mut number = || parts.next()?.split_whitespace().next()?.parse().ok();
            summary = Some((number()?, number()?));
        }
    }
    let (sent, received) = summary?;
    Some(PingReport {
        sent,
        received,
        duplicates,
        times: Times::new(times),
        complaints,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_has_every_time_duplicate_and_complaint() {
        let output = "PING 10.0.0.2 (10.0.0.2) 56(84) bytes of data.\n\
            [1700000000.100000] 64 bytes from 10.0.0.2: icmp_seq=1 ttl=64 time=0.031 ms\n\
            [1700000000.100100] 64 bytes from 10.0.0.2: icmp_seq=1 ttl=64 time=0.051 ms (DUP!)\n\
            [1700000000.200000] 64 bytes from 10.0.0.2: icmp_seq=2 ttl=64 time=12.5 ms\n\
            From 10.0.0.1 icmp_seq=3 Destination Host Unreachable\n\
            \n--- 10.0.0.2 ping statistics ---\n\
            3 packets transmitted, 2 received, +1 duplicates, +1 errors, 33.3333% packet loss, time 2ms\n";
        let report = parse(output).unwrap();
        assert_eq!((report.sent, report.received, report.duplicates), (3, 2, 1));
        assert_eq!(report.times.max(), Duration::from_micros(12_500));
        assert_eq!(report.complaints.len(), 1);
        assert!(!report.is_perfect());
        assert_eq!(parse("nothing"), None);
    }
}
