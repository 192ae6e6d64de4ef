//! Simulates a phone call: small numbered packets at a constant rate.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lab::{Host, LabError};

use crate::two_lines::failed;

/// Beginning of error messages about the call.
const TASK: &str = "cannot run the call";
const PORT: u16 = 5004;
/// Bytes of a G.711 packet with its headers.
const SIZE: usize = 172;
/// Interval between two packets.
pub(super) const EACH: Duration = Duration::from_millis(20);
/// How long to wait for the last packets.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// A sent packet: its planned send time since the start, and its delay if it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) at: Duration,
    pub(super) took: Option<Duration>,
}

/// All packets of one direction.
pub(super) type Packets = Vec<Sent>;

/// One direction of a call in progress.
#[derive(Debug)]
pub(super) struct Call {
    sender: JoinHandle<io::Result<Vec<Instant>>>,
    receiver: JoinHandle<io::Result<Vec<Option<Instant>>>>,
    finished: Finished,
    start: Instant,
}

/// Makes the receiver stop when the call ends, successfully or not.
#[derive(Debug, Default)]
struct Finished(Arc<AtomicBool>);

impl Drop for Finished {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Call {
    pub(super) fn start(
        from: &Host,
        to: &Host,
        address: Ipv4Addr,
        time: Duration,
    ) -> Result<Self, LabError> {
        let target = SocketAddr::from((address, PORT));
        let count = (time.as_millis() / EACH.as_millis()) as usize;
        let socket = to.run(|| UdpSocket::bind(target))?.map_err(failed(TASK))?;
        let finished = Finished::default();
        let receiver = to.spawn("call", {
            let finished = Arc::clone(&finished.0);
            move || receive(&socket, count, &finished)
        })?;
        let start = Instant::now();
        let sender = from.spawn("call", move || send(target, count, start))?;
        Ok(Self {
            sender,
            receiver,
            finished,
            start,
        })
    }

    /// Waits until all packets are sent, and for those in transit.
    pub(super) fn end(self) -> Result<Packets, LabError> {
        let sent = joined(self.sender)?;
        thread::sleep(LAST_WAIT);
        drop(self.finished);
        let come = joined(self.receiver)?;
        let packet = |(sent, come): (&Instant, &Option<Instant>)| Sent {
            at: *sent - self.start,
            took: come.map(|come| come.saturating_duration_since(*sent)),
        };
        Ok(sent.iter().zip(&come).map(packet).collect())
    }
}

/// Sends by the clock. A packet that the tunnel refuses counts as lost.
fn send(target: SocketAddr, count: usize, start: Instant) -> io::Result<Vec<Instant>> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let mut times = Vec::with_capacity(count);
    let mut packet = [0; SIZE];
    for number in 0..count as u32 {
        let at = start + EACH * number;
        thread::sleep(at.saturating_duration_since(Instant::now()));
        packet[..4].copy_from_slice(&number.to_be_bytes());
        times.push(Instant::now());
        let _ = socket.send_to(&packet, target);
    }
    Ok(times)
}

/// Receives packets and notes each one's first arrival time.
fn receive(
    socket: &UdpSocket,
    count: usize,
    finished: &AtomicBool,
) -> io::Result<Vec<Option<Instant>>> {
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    let mut come = vec![None; count];
    let mut packet = [0; SIZE];
    while !finished.load(Ordering::Acquire) {
        // A timeout or an ICMP error; try again.
        let Ok((SIZE, _)) = socket.recv_from(&mut packet) else {
            continue;
        };
        let [a, b, c, d, ..] = packet;
        let number = u32::from_be_bytes([a, b, c, d]) as usize;
        if let Some(come) = come.get_mut(number) {
            come.get_or_insert(Instant::now());
        }
    }
    Ok(come)
}

fn joined<T>(thread: JoinHandle<io::Result<T>>) -> Result<T, LabError> {
    // The thread only panics if the lab does.
    let result = thread
        .join()
        .unwrap_or_else(|why| std::panic::resume_unwind(why));
    result.map_err(failed(TASK))
}
