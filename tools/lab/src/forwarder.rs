//! A tunnel without any protocol or cipher: the upper limit for this design of data path.
//!
//! ```text
//! thread 1: TUN (super-packets) -> cut, checksum -> UDP_SEGMENT trains
//! thread 2: UDP_GRO trains -> verify, join -> TUN (super-packets)
//! ```
//! Every inner packet travels as one datagram without a header, complete with its own checksum. A real tunnel
//! protocol would only add a header and a tag. The forwarder shares the kernel interface (`netio`) with Millrace but
//! not the engine, for which it is the benchmark.

mod cut;
mod join;
mod packet;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;

use netio::tun::{Tun, TunError, TunOptions, VNET_HDR_LEN};
use netio::udp::{
    Ecn, Endpoint, Family, RecvScratch, SendScratch, SocketError, SocketOptions, TRAIN_ROOM, Train,
    UdpSocket,
};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use cut::Cutter;
use join::Joiner;

/// Bytes to gather from the TUN before sending.
const GATHER: usize = 64 * 1024;
/// Reads of the TUN before sending, so that single packets form trains.
const READS: usize = 64;

/// Settings of a forwarder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwarderOptions {
    /// Name of the TUN interface to create.
    pub interface: String,
    /// UDP port to listen at.
    pub port: u16,
    /// Address at which the other forwarder listens.
    pub remote: SocketAddr,
    /// Whether to use super-packets and trains, instead of one packet per system call.
    pub offloads: bool,
}

/// Why a forwarder ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForwarderError {
    /// The TUN could not be opened.
    #[error(transparent)]
    Tun(#[from] TunError),
    /// The socket could not be opened.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The TUN was deleted, or reading failed.
    #[error("cannot forward: {0}")]
    Io(#[from] io::Error),
}

/// Forwards in two threads until the TUN is deleted, in the network namespace of the current thread. Use a separate
/// process to measure its processor time.
///
/// # Errors
/// [`ForwarderError`]. Every return is an error, also after the TUN was deleted.
pub fn forward(options: &ForwarderOptions) -> Result<(), ForwarderError> {
    let wanted = if options.offloads {
        TunOptions::ALL
    } else {
        TunOptions::PLAIN
    };
    let tun = Tun::create(&options.interface, wanted)?;
    let family = match options.remote {
        SocketAddr::V4(_) => Family::V4,
        SocketAddr::V6(_) => Family::V6,
    };
    let socket = UdpSocket::bind(
        family,
        &SocketOptions {
            port: options.port,
            buffer: Some(8 << 20),
            gso: options.offloads,
            gro: options.offloads,
            mmsg: options.offloads,
            ..SocketOptions::default()
        },
    )?;
    let stop = EventFd::from_flags(EfdFlags::EFD_CLOEXEC).map_err(io::Error::from)?;
    thread::scope(|scope| {
        let inward = thread::Builder::new().name("forward in".to_owned());
        let inward = inward.spawn_scoped(scope, || udp_to_tun(&tun, &socket, &stop))?;
        let outward = tun_to_udp(&tun, &socket, options.remote);
        // The TUN is gone, which the socket's thread cannot notice by itself.
        stop.write(1).map_err(io::Error::from)?;
        match inward.join() {
            Ok(inward) => Ok(outward.and(inward)?),
            Err(why) => std::panic::resume_unwind(why),
        }
    })
}

/// Sleeps until there is something to read.
fn wait(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let mut descriptors = [PollFd::new(descriptor, PollFlags::POLLIN)];
    poll_some(&mut descriptors)
}

fn poll_some(descriptors: &mut [PollFd<'_>]) -> io::Result<()> {
    match poll(descriptors, PollTimeout::NONE) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn would_block(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

fn tun_to_udp(tun: &Tun, socket: &UdpSocket, remote: SocketAddr) -> io::Result<()> {
    let mut read = vec![0; VNET_HDR_LEN + TRAIN_ROOM];
    let mut cutter = Cutter::new(tun.vnet_hdr());
    let mut scratch = SendScratch::new();
    let mut trains: Vec<Train> = Vec::new();
    loop {
        cutter.clear();
        for _ in 0..READS {
            match tun.read(&mut read) {
                Ok(length) => cutter.add(&read[..length]),
                Err(error) if would_block(&error) => break,
                Err(error) => return Err(error),
            }
            if cutter.bytes().len() >= GATHER {
                break;
            }
        }
        if cutter.trains().is_empty() {
            wait(tun.as_fd())?;
            continue;
        }
        trains.clear();
        trains.extend(cutter.trains().iter().map(|train| Train {
            start: train.start as u32,
            len: train.length as u32,
            segment: train.segment as u32,
            endpoint: Endpoint::new(remote),
            ecn: Ecn::from_tos(0),
        }));
        // A packet that the kernel refuses is lost, as on any line.
        scratch.begin_batch();
        socket.send_trains(&mut scratch, cutter.bytes(), &trains);
    }
}

fn udp_to_tun(tun: &Tun, socket: &UdpSocket, stop: &EventFd) -> io::Result<()> {
    let mut memory = vec![0; TRAIN_ROOM];
    let mut scratch = RecvScratch::new();
    let mut found = Vec::new();
    let mut joiner = Joiner::new(tun.vnet_hdr());
    loop {
        found.clear();
        let room = TRAIN_ROOM / READS;
        let received = socket.recv_trains(&mut scratch, &mut memory, 2 * room, READS, |train| {
            found.push((
                train.start as usize,
                train.len as usize,
                train.segment as usize,
            ));
        });
        match received {
            Ok(_) => {}
            Err(error) if would_block(&error) => {
                let mut descriptors = [
                    PollFd::new(socket.as_fd(), PollFlags::POLLIN),
                    PollFd::new(stop.as_fd(), PollFlags::POLLIN),
                ];
                poll_some(&mut descriptors)?;
                if descriptors[1].any() == Some(true) {
                    return Ok(());
                }
                continue;
            }
            // An ICMP error about an earlier datagram.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
            Err(error) => return Err(error),
        }
        let packets = found.iter().flat_map(|&(start, length, segment)| {
            (start..start + length)
                .step_by(segment)
                .map(move |at| at..(at + segment).min(start + length))
        });
        joiner.write(&memory, packets, |parts| {
            // A TUN that is down refuses packets; they count as lost.
            let _ = tun.write(parts);
        });
    }
}
