//! Sends data by TCP and UDP, and compares the content that arrives.

use nix::sys::socket::{setsockopt, sockopt};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use crate::Host;

use super::{PATIENCE, ip};

/// The bytes to send, which differ at every position and in every stream.
pub(super) struct Content(pub(super) u64);

impl Content {
    pub(super) fn fill(&mut self, buffer: &mut [u8]) {
        for byte in buffer {
            // xorshift64: no period that coincides with packets, pages or buffers.
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            *byte = (self.0 >> 32) as u8;
        }
    }
}

fn send_content(mut stream: &TcpStream, seed: u64, mut left: usize) -> io::Result<()> {
    let (mut content, mut buffer) = (Content(seed), vec![0; 50_021]);
    while left > 0 {
        let part = left.min(buffer.len());
        content.fill(&mut buffer[..part]);
        stream.write_all(&buffer[..part])?;
        left -= part;
    }
    Ok(())
}

fn receive_content(
    mut stream: &TcpStream,
    seed: u64,
    size: usize,
    seen: &AtomicU32,
) -> io::Result<()> {
    let mut content = Content(seed);
    let (mut buffer, mut expected) = (vec![0; 50_021], vec![0; 50_021]);
    let mut done = 0;
    while done < size {
        let part = (size - done).min(buffer.len());
        let got = stream.read(&mut buffer[..part])?;
        if got == 0 {
            let words = format!("the stream ends after {done} of {size} bytes");
            return Err(io::Error::other(words));
        }
        content.fill(&mut expected[..got]);
        if buffer[..got] != expected[..got] {
            let words = format!(
                "other content than was sent, between {done} and {}",
                done + got
            );
            return Err(io::Error::other(words));
        }
        done += got;
        seen.store(u32::try_from(done).unwrap_or(u32::MAX), Ordering::Relaxed);
    }
    Ok(())
}

/// Sends `size` bytes each way at once over one TCP connection from `client` to `server`, and compares the content.
/// Meanwhile runs `meanwhile` with a count of the bytes that have reached the server.
pub fn tcp_both_ways_while(
    client: &Host,
    server: &Host,
    target: IpAddr,
    size: usize,
    meanwhile: impl FnOnce(&AtomicU32) + Send,
) {
    let listener = server
        .run(|| TcpListener::bind((target, 0)))
        .unwrap()
        .unwrap();
    let at = listener.local_addr().unwrap();
    let seen = AtomicU32::new(0);
    let unseen = AtomicU32::new(0);
    let prepare = |stream: &TcpStream| {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
    };
    let results = thread::scope(|scope| {
        let serve = scope.spawn(|| {
            let (stream, _) = listener.accept()?;
            prepare(&stream);
            thread::scope(|both| {
                let sender = both.spawn(|| send_content(&stream, 2, size));
                receive_content(&stream, 1, size, &seen)?;
                sender.join().unwrap()
            })
        });
        let call = scope.spawn(|| {
            let stream = client
                .run(|| TcpStream::connect_timeout(&at, PATIENCE))
                .unwrap()?;
            prepare(&stream);
            thread::scope(|both| {
                let sender = both.spawn(|| send_content(&stream, 1, size));
                receive_content(&stream, 2, size, &unseen)?;
                sender.join().unwrap()
            })
        });
        meanwhile(&seen);
        let called = call.join().unwrap();
        if called.is_err() {
            // Connect once more, in case the server still waits for a client.
            let _ = client.run(|| TcpStream::connect_timeout(&at, Duration::from_secs(1)));
            let _ = server.run(|| TcpStream::connect_timeout(&at, Duration::from_secs(1)));
        }
        [called, serve.join().unwrap()]
    });
    for result in results {
        result.unwrap_or_else(|error| panic!("TCP to {target}: {error}"));
    }
}

/// Sends as [`tcp_both_ways_while`] does, without doing anything meanwhile.
pub fn tcp_both_ways(client: &Host, server: &Host, target: &str, size: usize) {
    tcp_both_ways_while(client, server, ip(target), size, |_| {});
}

/// Sends numbered datagrams of all lengths from `client` to `server`, which echoes them, and compares the content.
/// Only a few are in transit at a time, so that no queue can overflow.
pub fn udp_both_ways(client: &Host, server: &Host, target: &str, count: u32, largest: usize) {
    const WINDOW: u32 = 24;
    let any = |target: IpAddr| -> SocketAddr {
        match target {
            IpAddr::V4(_) => ([0; 4], 0).into(),
            IpAddr::V6(_) => ([0; 16], 0).into(),
        }
    };
    let target = ip(target);
    let echo = server
        .run(|| UdpSocket::bind((target, 0)))
        .unwrap()
        .unwrap();
    let at = echo.local_addr().unwrap();
    let socket = client
        .run(|| UdpSocket::bind(any(target)))
        .unwrap()
        .unwrap();
    socket.connect(at).unwrap();
    for socket in [&socket, &echo] {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        // For datagrams cut from a super-packet, the kernel charges far more than their bytes against the default
        // buffer.
        setsockopt(socket, sockopt::RcvBufForce, &(4 << 20)).unwrap();
    }
    let payload = |number: u32| {
        let length = (number as usize * 977) % (largest - 3) + 4;
        let mut bytes = vec![0; length];
        Content(u64::from(number) + 1).fill(&mut bytes);
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        bytes
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = vec![0; 65_536];
            for _ in 0..count {
                let (length, from) = echo.recv_from(&mut buffer).expect("a datagram to echo");
                echo.send_to(&buffer[..length], from).unwrap();
            }
        });
        let mut buffer = vec![0; 65_536];
        let (mut sent, mut received) = (0, 0);
        while received < count {
            while sent < count && sent - received < WINDOW {
                socket.send(&payload(sent)).unwrap();
                sent += 1;
            }
            let length = socket
                .recv(&mut buffer)
                .unwrap_or_else(|error| panic!("{received} of {sent} came back: {error}"));
            let number = u32::from_be_bytes(buffer[..4].try_into().unwrap());
            assert_eq!(buffer[..length], payload(number), "datagram {number}");
            received += 1;
        }
    });
}
