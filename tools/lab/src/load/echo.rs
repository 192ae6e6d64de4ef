//! Measures the time until the first answer: how long a tunnel takes to come up.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use crate::{Host, LabError};

/// Time between two requests, which is the precision of the result. A single request could be lost before anything
/// listens, and a retry a second later would say nothing about the tunnel.
const AGAIN: Duration = Duration::from_micros(300);
/// How often the server checks whether to stop.
const LOOK: Duration = Duration::from_millis(20);

/// A server that sends every datagram back to its sender.
#[derive(Debug)]
pub struct EchoServer {
    port: u16,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl EchoServer {
    /// Starts a server in `host`, at all its addresses, future ones included.
    ///
    /// # Errors
    /// [`LabError::Load`] if the port is taken.
    pub fn start(host: &Host, port: u16) -> Result<Self, LabError> {
        let any = SocketAddr::from(([0u8; 4], port));
        let socket = host
            .run(|| {
                let socket = UdpSocket::bind(any)?;
                socket.set_read_timeout(Some(LOOK))?;
                Ok(socket)
            })?
            .map_err(LabError::load(format!("listen at {any}")))?;
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = host.spawn("echo", move || {
            let mut buffer = [0; 2048];
            while !told.load(Ordering::Relaxed) {
                // On a timeout, or an ICMP error about an earlier answer, try again.
                if let Ok((length, from)) = socket.recv_from(&mut buffer) {
                    let _ = socket.send_to(&buffer[..length], from);
                }
            }
            Ok(())
        })?;
        Ok(Self {
            port,
            stop,
            thread: Some(thread),
        })
    }

    /// Sends a request from `host` to `address` every 0.3 ms until an answer arrives, and returns the time of that
    /// answer; `None` if no answer arrives within `limit`.
    ///
    /// # Errors
    /// [`LabError::Host`], [`LabError::Load`] if no socket can be opened.
    pub fn first_answer(
        &self,
        host: &Host,
        address: IpAddr,
        limit: Duration,
    ) -> Result<Option<Instant>, LabError> {
        let target = SocketAddr::new(address, self.port);
        host.run(|| ask(target, limit))?
            .map_err(LabError::load(format!("ask {target}")))
    }
}

impl Drop for EchoServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn ask(target: SocketAddr, limit: Duration) -> io::Result<Option<Instant>> {
    let socket = UdpSocket::bind(("0.0.0.0", 0))?;
    socket.set_nonblocking(true)?;
    let end = Instant::now() + limit;
    let mut buffer = [0; 64];
    while Instant::now() < end {
        // There is no route yet, or no server.
        if socket.send_to(b"are you there", target).is_err() {
            thread::sleep(AGAIN);
            continue;
        }
        // A socket's own timeout has the resolution of the kernel's tick, 4 ms and more.
        let mut waited = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
        ppoll(&mut waited, Some(TimeSpec::from_duration(AGAIN)), None)?;
        if socket.recv_from(&mut buffer).is_ok() {
            return Ok(Some(Instant::now()));
        }
    }
    Ok(None)
}
