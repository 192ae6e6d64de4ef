//! Sends traffic through the router, and counts the router's instructions.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use lab::load::{Direction, Iperf, IperfServer};
use lab::{Host, LabError};

use crate::machine::{FAR_INSIDE, Machine, failed};

/// Seconds of TCP.
const SECONDS: u32 = 5;
/// Maximum number of datagrams in transit.
const WINDOW: usize = 32;
/// Datagrams there and back.
const DATAGRAMS: usize = 10_000;
/// Bytes of payload of a small datagram.
const SMALL: usize = 64;
/// Bytes there and back to be compared.
const COMPARED: usize = 4 << 20;
const COMPARE_PORT: u16 = 9;

/// The cost of a number of packets.
pub(crate) struct Cost {
    /// Forwarded packets that count: TCP data in its direction, datagrams in both.
    packets: u64,
    /// Acknowledgements in the other direction.
    others: u64,
    user: u64,
    kernel: u64,
    /// The packets of the tunnel's interface, to the program and from it.
    tunnel: [u64; 2],
    /// Index in `tunnel` of the counted packets' direction; `None` for both directions.
    way: Option<usize>,
}

impl Cost {
    pub(crate) const HEAD: &str = "contender\ttraffic\tpackets\tacknowledgements per packet\t\
        packets per super-packet\tuser\tkernel\tinstructions per packet";

    /// Packets in the other direction for each that counts.
    pub(crate) fn acknowledgements(&self) -> f64 {
        self.others as f64 / self.packets.max(1) as f64
    }

    /// Packets per transfer between the kernel and the program, as super-packets join several.
    pub(crate) fn together(&self) -> f64 {
        let carried = match self.way {
            Some(way) => self.tunnel[way],
            None => self.tunnel.iter().sum(),
        };
        self.packets as f64 / carried.max(1) as f64
    }

    /// Instructions for each packet, in programs and in the kernel.
    pub(crate) fn each(&self) -> f64 {
        (self.user + self.kernel) as f64 / self.packets.max(1) as f64
    }

    pub(crate) fn line(&self, contender: &str, traffic: &str) -> String {
        let each = |count: u64| count as f64 / self.packets.max(1) as f64;
        format!(
            "{contender}\t{traffic}\t{}\t{:.3}\t{:.1}\t{:.0}\t{:.0}\t{:.0}",
            self.packets,
            self.acknowledgements(),
            self.together(),
            each(self.user),
            each(self.kernel),
            self.each(),
        )
    }
}

/// Packets that the device's interface has sent and received.
fn packets(device: &Host) -> Result<[u64; 2], LabError> {
    let table = device
        .run(|| fs::read_to_string("/proc/thread-self/net/dev"))?
        .map_err(failed("read /proc/net/dev"))?;
    let line = table
        .lines()
        .find_map(|line| line.trim().strip_prefix("lan0:"));
    let fields: Vec<u64> = line
        .unwrap_or_default()
        .split_whitespace()
        .map(|field| field.parse().unwrap_or(0))
        .collect();
    Ok([
        fields.get(9).copied().unwrap_or(0),
        fields.get(1).copied().unwrap_or(0),
    ])
}

/// Runs `work` and says what it cost, and the packets that left and came.
fn costs<T>(
    machine: &Machine,
    device: &Host,
    work: impl FnOnce() -> Result<T, LabError>,
) -> Result<(T, Cost), LabError> {
    let tunnel_before = machine.facts()?.tunnel;
    let (packets_before, before) = (packets(device)?, machine.executed());
    let result = work()?;
    let (packets_after, after) = (packets(device)?, machine.executed());
    let tunnel_after = machine.facts()?.tunnel;
    let cost = Cost {
        tunnel: [0, 1].map(|way| tunnel_after[way].saturating_sub(tunnel_before[way])),
        way: Some(0),
        packets: packets_after[0] - packets_before[0],
        others: packets_after[1] - packets_before[1],
        user: after.user - before.user,
        kernel: after.kernel - before.kernel,
    };
    Ok((result, cost))
}

/// TCP with full-size packets.
pub(crate) struct Tcp {
    server: IperfServer,
}

impl Tcp {
    pub(crate) fn start(far: &Host) -> Result<Self, LabError> {
        let server = IperfServer::start(far, FAR_INSIDE, 5201)?;
        Ok(Self { server })
    }

    /// One connection for some seconds, `down` to the device or up from it. The packets that count are those with data.
    pub(crate) fn send(
        &self,
        machine: &Machine,
        device: &Host,
        down: bool,
    ) -> Result<Cost, LabError> {
        let iperf = Iperf {
            seconds: SECONDS,
            direction: if down {
                Direction::Reverse
            } else {
                Direction::Forward
            },
            ..Iperf::default()
        };
        let (_, cost) = costs(machine, device, || iperf.run(device, &self.server))?;
        Ok(if down {
            Cost {
                packets: cost.others,
                others: cost.packets,
                way: Some(1),
                ..cost
            }
        } else {
            cost
        })
    }
}

/// Small datagrams to the far end and back, a window of them in transit.
pub(crate) fn datagrams(machine: &Machine, device: &Host, port: u16) -> Result<Cost, LabError> {
    let target = SocketAddr::new(FAR_INSIDE, port);
    let (lost, cost) = costs(machine, device, || {
        device
            .run(|| window(target))?
            .map_err(failed("send datagrams"))
    })?;
    if lost > 0 {
        eprintln!("router: {lost} datagrams of {DATAGRAMS} lost");
    }
    Ok(Cost {
        packets: cost.packets + cost.others,
        others: 0,
        way: None,
        ..cost
    })
}

/// Returns the number of datagrams that did not come back.
fn window(target: SocketAddr) -> io::Result<usize> {
    let socket = UdpSocket::bind(("0.0.0.0", 0))?;
    socket.connect(target)?;
    socket.set_read_timeout(Some(Duration::from_secs(2)))?;
    let (mut sent, mut back, mut lost) = (0, 0, 0);
    let mut buffer = [0x5a; SMALL];
    while back + lost < DATAGRAMS {
        while sent < DATAGRAMS && sent - back - lost < WINDOW {
            socket.send(&buffer)?;
            sent += 1;
        }
        match socket.recv(&mut buffer) {
            Ok(_) => back += 1,
            // No datagram for a long time: those in transit are lost.
            Err(_) => lost = sent - back,
        }
    }
    Ok(lost)
}

/// Sends bytes that do not repeat to the far end, which sends them back, and compares. Returns how many.
pub(crate) fn compare(device: &Host, far: &Host) -> Result<usize, LabError> {
    let address = SocketAddr::new(FAR_INSIDE, COMPARE_PORT);
    let listener = far
        .run(|| TcpListener::bind(address))?
        .map_err(failed("listen at the far end"))?;
    let mirror = far.spawn("mirror", move || {
        let (mut stream, _) = listener.accept()?;
        let mut buffer = [0; 16384];
        loop {
            match stream.read(&mut buffer)? {
                0 => return Ok(()),
                len => stream.write_all(&buffer[..len])?,
            }
        }
    })?;
    let outcome = device.run(|| there_and_back(address))?;
    let _ = mirror.join();
    outcome.map_err(failed("compare what came back"))
}

fn there_and_back(address: SocketAddr) -> io::Result<usize> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut sending = stream.try_clone()?;
    let sender = std::thread::spawn(move || {
        for chunk in chunks() {
            sending.write_all(&chunk)?;
        }
        sending.shutdown(std::net::Shutdown::Write)
    });
    let mut compared = 0;
    for chunk in chunks() {
        let mut back = vec![0; chunk.len()];
        stream.read_exact(&mut back)?;
        if back != chunk {
            return Err(io::Error::other(format!(
                "what came back differs after byte {compared}"
            )));
        }
        compared += chunk.len();
    }
    let sent = sender.join().map_err(|_| io::Error::other("no sender"))?;
    sent.map(|()| compared)
}

/// Bytes that are equal each time, and none like the ones before: a multiplicative generator (Knuth's MMIX constants).
fn chunks() -> impl Iterator<Item = Vec<u8>> {
    let mut state = 1_u64;
    (0..COMPARED / 8192).map(move |_| {
        (0..8192)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (state >> 56) as u8
            })
            .collect()
    })
}
