//! Runs iperf3 and reads its JSON report.

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{Host, LabError, Process, tools};

/// How long a server gets before it must listen.
const READY: Duration = Duration::from_secs(40);
/// Time that a client gets beyond the length of its test: a lossy line delays the end.
const SLACK: Duration = Duration::from_secs(30);

/// Which side sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direction {
    /// The client sends.
    #[default]
    Forward,
    /// The server sends.
    Reverse,
    /// Both send at once.
    Both,
}

/// The kind of load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TCP, as fast as it goes.
    Tcp,
    /// UDP datagrams.
    Udp {
        /// Bits per second of payload that the sender tries; 0 means no limit.
        rate: u64,
        /// Bytes of payload in a datagram.
        size: u16,
    },
}

/// A measurement to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Iperf {
    /// The kind of load.
    pub transport: Transport,
    /// Number of connections in each direction.
    pub streams: u16,
    /// Which side sends.
    pub direction: Direction,
    /// Length of the measurement, in whole seconds.
    pub seconds: u32,
    /// Whole seconds before the measurement, which do not count: TCP is still finding its rate.
    pub omit: u32,
    /// TCP's congestion control, by the kernel's name for it.
    pub congestion: &'static str,
}

impl Default for Iperf {
    fn default() -> Self {
        Self {
            transport: Transport::Tcp,
            streams: 1,
            direction: Direction::Forward,
            seconds: 3,
            omit: 0,
            // The machine's default may be bbr, which hides reordering.
            congestion: "cubic",
        }
    }
}

/// The data that one side received from the other.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Flow {
    /// Bytes of payload that arrived.
    pub bytes: u64,
    /// Length of the measurement, in seconds.
    pub seconds: f64,
    /// TCP segments that were retransmitted.
    pub retransmits: u64,
    /// UDP datagrams sent.
    pub datagrams: u64,
    /// UDP datagrams lost.
    pub lost: u64,
}

impl Flow {
    /// Bits of payload per second that arrived.
    pub fn bits_per_second(&self) -> f64 {
        if self.seconds > 0.0 {
            self.bytes as f64 * 8.0 / self.seconds
        } else {
            0.0
        }
    }
}

/// Result of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct IperfReport {
    /// The requested direction; for both, from client to server.
    pub flow: Flow,
    /// From server to client, if both directions were requested.
    pub back: Option<Flow>,
}

impl IperfReport {
    /// Bytes that arrived, in both directions.
    pub fn bytes(&self) -> u64 {
        self.flow.bytes + self.back.map_or(0, |back| back.bytes)
    }

    /// Bits per second that arrived, in both directions.
    pub fn bits_per_second(&self) -> f64 {
        self.flow.bits_per_second() + self.back.map_or(0.0, |back| back.bits_per_second())
    }
}

/// A server that waits for clients.
#[derive(Debug)]
pub struct IperfServer {
    process: Process,
    address: IpAddr,
    port: u16,
}

impl IperfServer {
    /// Starts a server in `host` at `address`, and waits until it listens.
    ///
    /// # Errors
    /// [`LabError::Missing`] without iperf3, [`LabError::Failed`] if the port is taken.
    pub fn start(host: &Host, address: IpAddr, port: u16) -> Result<Self, LabError> {
        let mut process = host
            .command(tools::find("iperf3")?)
            .args(["-s", "--forceflush", "-p", &port.to_string()])
            .args(["-B", &address.to_string()])
            .spawn()?;
        process.wait_for_line("listening", READY, |line| line.contains("listening"))?;
        Ok(Self {
            process,
            address,
            port,
        })
    }

    /// How often the server has begun to listen: once for each test.
    fn listened(&self) -> usize {
        self.process.stdout().matches("listening").count()
    }
}

impl Iperf {
    /// Runs the measurement from `host` against a server.
    ///
    /// # Errors
    /// [`LabError::Load`] with iperf3's own message if it fails, [`LabError::Timeout`] if it hangs.
    pub fn run(&self, host: &Host, server: &IperfServer) -> Result<IperfReport, LabError> {
        let mut command = host
            .command(tools::find("iperf3")?)
            .args(["-c", &server.address.to_string()])
            .args(["-p", &server.port.to_string()])
            .args(["-t", &self.seconds.to_string()])
            .args(["-P", &self.streams.to_string()])
            .args(["-O", &self.omit.to_string()])
            .args(["-J", "-i", "0"]);
        command = match self.direction {
            Direction::Forward => command,
            Direction::Reverse => command.arg("-R"),
            Direction::Both => command.arg("--bidir"),
        };
        command = match self.transport {
            Transport::Tcp => command.args(["-C", self.congestion]),
            Transport::Udp { rate, size } => {
                command.args(["-u", "-b", &rate.to_string(), "-l", &size.to_string()])
            }
        };
        let limit = Duration::from_secs((self.omit + self.seconds).into()) + SLACK;
        let before = server.listened();
        let exit = command.spawn()?.wait_at_most(limit)?;
        let report = parse(&exit.stdout, self.transport)?;
        // Between two tests the server closes its socket, and would refuse the next client.
        let end = Instant::now() + READY;
        while server.listened() == before && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
        Ok(report)
    }
}

fn parse(output: &str, transport: Transport) -> Result<IperfReport, LabError> {
    let unreadable = |reason: &str| LabError::Report {
        program: "iperf3".to_owned(),
        reason: reason.to_owned(),
        output: output.chars().take(500).collect(),
    };
    let report: Value =
        serde_json::from_str(output).map_err(|error| unreadable(&error.to_string()))?;
    if let Some(error) = report["error"].as_str() {
        return Err(LabError::Load {
            what: "iperf3".to_owned(),
            error: std::io::Error::other(error.to_owned()),
        });
    }
    let end = &report["end"];
    let flow = |suffix: &str| -> Option<Flow> {
        let sent = &end[format!("sum_sent{suffix}")];
        let received = &end[format!("sum_received{suffix}")];
        match transport {
            Transport::Tcp => Some(Flow {
                bytes: received["bytes"].as_u64()?,
                seconds: received["seconds"].as_f64()?,
                retransmits: sent["retransmits"].as_u64().unwrap_or(0),
                ..Flow::default()
            }),
            Transport::Udp { size, .. } => {
                // Before about 3.15, a single direction has only "sum", which counts the bytes sent.
                let sum = Some(received)
                    .filter(|sum| sum["packets"].is_u64())
                    .unwrap_or_else(|| &end[format!("sum{suffix}")]);
                let sum_sent = Some(sent)
                    .filter(|sum| sum["packets"].is_u64())
                    .unwrap_or(sum);
                let datagrams = sum_sent["packets"].as_u64()?;
                let lost = sum["lost_packets"].as_u64()?;
                Some(Flow {
                    bytes: datagrams.saturating_sub(lost) * u64::from(size),
                    seconds: sum["seconds"].as_f64()?,
                    datagrams,
                    lost,
                    ..Flow::default()
                })
            }
        }
    };
    Ok(IperfReport {
        flow: flow("").ok_or_else(|| unreadable("no sums"))?,
        back: flow("_bidir_reverse"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_both_ways() {
        let text = r#"{"end":{
            "sum_sent":{"seconds":3.0,"bytes":1000,"retransmits":7},
            "sum_received":{"seconds":2.0,"bytes":900},
            "sum_sent_bidir_reverse":{"seconds":3.0,"bytes":500,"retransmits":1},
            "sum_received_bidir_reverse":{"seconds":2.0,"bytes":400}}}"#;
        let report = parse(text, Transport::Tcp).unwrap();
        assert_eq!((report.flow.bytes, report.flow.retransmits), (900, 7));
        assert_eq!(report.bytes(), 1300);
        assert!((report.bits_per_second() - 5200.0).abs() < 1e-9);
    }

    #[test]
    fn udp_counts_what_arrived() {
        let text = r#"{"end":{"sum":{"seconds":2.0,"bytes":13000,"packets":10,"lost_packets":4}}}"#;
        let udp = Transport::Udp {
            rate: 0,
            size: 1300,
        };
        let report = parse(text, udp).unwrap();
        assert_eq!((report.flow.bytes, report.flow.lost), (7800, 4));
        assert_eq!(report.back, None);
    }

    #[test]
    fn its_own_words_come_through() {
        let error = parse(r#"{"error":"unable to connect"}"#, Transport::Tcp).unwrap_err();
        assert!(error.to_string().contains("unable to connect"));
        assert!(parse("{}", Transport::Tcp).is_err());
        assert!(parse("not json", Transport::Tcp).is_err());
    }
}
