//! The start-up self-test of UDP segmentation: datagrams sent over loopback must arrive intact.
//!
//! Some kernels accept `UDP_SEGMENT` and damage the payload (Linux 7.0.0 to 7.1.4, and guests of some hypervisors).
//! Trusting `setsockopt` alone would give a tunnel that answers pings but loads no pages.

use super::{Endpoint, Family, RecvScratch, SendScratch, SocketOptions, Train, UdpSocket};
use crate::poll::Poller;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

const SEGMENT: usize = 1232;
const COUNT: usize = 7;

/// Verdict of [`self_test`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelfTest {
    /// Every byte arrived.
    Passed,
    /// The test could not be run (no loopback, no ports): nothing is known.
    NotRun(String),
    /// A datagram did not arrive as it was sent.
    Failed(String),
}

/// Sends one train with `UDP_SEGMENT` over loopback, receives it with `UDP_GRO` and compares.
#[must_use]
pub fn self_test() -> SelfTest {
    let options = SocketOptions {
        gso: true,
        gro: true,
        mmsg: true,
        ..SocketOptions::default()
    };
    let open = || UdpSocket::bind(Family::V4, &options).map_err(|e| e.to_string());
    let (tx, rx) = match (open(), open()) {
        (Ok(tx), Ok(rx)) => (tx, rx),
        (Err(e), _) | (_, Err(e)) => return SelfTest::NotRun(e),
    };
    if !tx.gso.on() {
        return SelfTest::NotRun(format!("UDP_SEGMENT is {}", tx.gso));
    }
    let bytes: Vec<u8> = (0..SEGMENT * COUNT - 100)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 7) as u8)
        .collect();
    let train = Train {
        start: 0,
        len: bytes.len() as u32,
        segment: SEGMENT as u32,
        endpoint: Endpoint::new(SocketAddr::from((Ipv4Addr::LOCALHOST, rx.port()))),
        ecn: super::Ecn::NotEct,
    };
    let report = tx.send_trains(&mut SendScratch::new(), &bytes, &[train]);
    if !tx.gso.on() || report.sent != COUNT as u64 {
        return SelfTest::NotRun(format!("loopback: errno {}", report.errno));
    }
    let Ok(poller) = Poller::new() else {
        return SelfTest::NotRun("no epoll".to_owned());
    };
    if poller.add(&rx, 0).is_err() {
        return SelfTest::NotRun("no epoll".to_owned());
    }
    let mut scratch = RecvScratch::new();
    let mut memory = vec![0; super::recv::TRAIN_ROOM];
    let mut got = Vec::with_capacity(bytes.len());
    while got.len() < bytes.len() {
        match poller.wait(Some(Duration::from_millis(200))) {
            Ok(ready) if !ready.is_empty() => {}
            _ => {
                return SelfTest::Failed(format!("{} of {} bytes arrived", got.len(), bytes.len()));
            }
        }
        let mut trains = Vec::new();
        let received = rx.recv_trains(&mut scratch, &mut memory, 2048, 64, |t| trains.push(t));
        if received.is_err() {
            return SelfTest::NotRun("receive failed".to_owned());
        }
        for train in trains {
            if train.segment as usize != SEGMENT && train.len as usize > SEGMENT {
                return SelfTest::Failed(format!("segments of {} bytes arrived", train.segment));
            }
            let start = train.start as usize;
            got.extend_from_slice(&memory[start..start + train.len as usize]);
        }
    }
    if got == bytes {
        SelfTest::Passed
    } else {
        SelfTest::Failed("the received bytes differ from the sent ones".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_passes_or_cannot_tell() {
        assert!(!matches!(self_test(), SelfTest::Failed(_)));
    }
}
