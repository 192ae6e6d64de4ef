//! A port with two sockets: a program in the kernel chooses by a datagram's first byte which socket gets it.
//!
//! The sockets form a group (`SO_REUSEPORT`, socket(7)). The first one is in it from the start, with a program that
//! chooses it always, so that the second one gets nothing before [`UdpSocket::steer`].
//!
//! The kernel joins datagrams to trains (`UDP_GRO`) before the program sees them, and asks it about the first one only.
//! So trains must be [off](SharedPort::disable_gro) while both sockets are used.

use super::socket::{Family, Singles, SocketError, SocketOptions, UdpSocket, set_int, set_option};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Places in the group, in the order in which the sockets were bound.
const FIRST: u32 = 0;
const SECOND: u32 = 1;

// Instructions of classic BPF (linux/bpf_common.h): load a byte, jump if equal, return.
const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// The most first bytes that can be steered: a jump skips at most 255 instructions.
const BYTES_MAX: usize = 200;

/// The port of a socket, for a second socket.
#[derive(Clone, Debug)]
pub struct SharedPort {
    family: Family,
    options: SocketOptions,
    /// Whether the first socket may receive trains at all.
    trains: bool,
    singles: Arc<Singles>,
}

impl SharedPort {
    /// Has the first socket receive single datagrams only, as soon as nothing waits in it; or lets it choose again.
    pub fn disable_gro(&self, disable: bool) {
        self.singles
            .gro_is_forbidden
            .store(disable, Ordering::Relaxed);
    }

    /// Whether the first socket receives single datagrams only, until [`disable_gro`](Self::disable_gro) ends that.
    #[must_use]
    pub fn is_gro_disabled(&self) -> bool {
        let singles = &self.singles;
        !self.trains || (singles.forbid_gro() && singles.on.load(Ordering::Relaxed))
    }

    /// Opens the second socket, which gets no datagram yet.
    ///
    /// # Errors
    /// See [`SocketError`]; the port is in use if this process has changed its user.
    pub fn second(&self) -> Result<UdpSocket, SocketError> {
        UdpSocket::open(self.family, &self.options, shares)
    }
}

impl UdpSocket {
    /// Lets a second socket of this process use the port later, with these options of the first one but without trains.
    ///
    /// # Errors
    /// The kernel has no such groups.
    pub fn share_port(&mut self, options: &SocketOptions) -> Result<SharedPort, SocketError> {
        let options = SocketOptions {
            port: self.port(),
            gso: false,
            gro: false,
            aqm: false,
            ..options.clone()
        };
        // Only now, as the kernel would else have chosen a port that another such socket has.
        shares(&self.fd).map_err(|source| SocketError::Option {
            what: "SO_REUSEPORT",
            source,
        })?;
        let shared = SharedPort {
            family: self.family(),
            options,
            trains: self.gro.on(),
            singles: Arc::clone(&self.singles),
        };
        // The first second socket makes the group, which stays for the next ones.
        shared.second()?;
        self.steer(&[]).map_err(|source| SocketError::Option {
            what: "SO_ATTACH_REUSEPORT_CBPF",
            source,
        })?;
        self.shared = Some(shared.clone());
        Ok(shared)
    }

    /// The port, if [`share_port`](Self::share_port) has made it ready for a second socket.
    #[must_use]
    pub fn shared_port(&self) -> Option<&SharedPort> {
        self.shared.as_ref()
    }

    /// Sends datagrams that begin with one of these bytes to the second socket of the port, from the next one on.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn steer(&self, first_bytes: &[u8]) -> io::Result<()> {
        let bytes = &first_bytes[..first_bytes.len().min(BYTES_MAX)];
        let instruction = |code, k, jt| libc::sock_filter { code, jt, jf: 0, k };
        let mut program = vec![instruction(LOAD_BYTE, 0, 0)];
        for (place, byte) in bytes.iter().enumerate() {
            // Over the other comparisons and the first answer.
            let over = (bytes.len() - place) as u8;
            program.push(instruction(JUMP_IF_EQUAL, (*byte).into(), over));
        }
        program.push(instruction(RETURN, FIRST, 0));
        program.push(instruction(RETURN, SECOND, 0));
        let program = libc::sock_fprog {
            len: program.len() as u16,
            filter: program.as_mut_ptr(),
        };
        let level = libc::SOL_SOCKET;
        set_option(&self.fd, level, libc::SO_ATTACH_REUSEPORT_CBPF, &[program])
    }
}

fn shares(fd: &OwnedFd) -> io::Result<()> {
    set_int(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket as Plain};
    use std::os::fd::AsFd;

    const HERE: [(Family, IpAddr); 2] = [
        (Family::V4, IpAddr::V4(Ipv4Addr::LOCALHOST)),
        (Family::V6, IpAddr::V6(Ipv6Addr::LOCALHOST)),
    ];

    fn options(address: IpAddr, gro: bool) -> SocketOptions {
        SocketOptions {
            address: Some(address),
            mmsg: true,
            gro,
            calls: true,
            ..SocketOptions::default()
        }
    }

    /// The first bytes of all datagrams that wait in a socket.
    fn waiting(socket: &UdpSocket) -> Vec<u8> {
        let socket = Plain::from(socket.as_fd().try_clone_to_owned().unwrap());
        let mut first = Vec::new();
        let mut bytes = [0; 16];
        while socket.recv(&mut bytes).is_ok() {
            first.push(bytes[0]);
        }
        first
    }

    #[test]
    fn the_first_byte_chooses_the_socket() {
        for (family, address) in HERE {
            let options = options(address, false);
            let Ok(mut first) = UdpSocket::bind(family, &options) else {
                continue;
            };
            let port = first.share_port(&options).unwrap();
            let stranger = Plain::bind((address, 0)).unwrap();
            stranger.connect((address, first.port())).unwrap();
            let send = |bytes: &[u8]| {
                for byte in bytes {
                    stranger.send(&[*byte, 1, 2, 3]).unwrap();
                }
            };
            send(&[1, 2]);
            for _ in 0..3 {
                let second = port.second().unwrap();
                assert_eq!(second.port(), first.port());
                send(&[1, 2, 3]);
                assert!(waiting(&second).is_empty());
                second.steer(&[2, 9]).unwrap();
                send(&[1, 2, 3, 9]);
                assert_eq!(waiting(&second), [2, 9]);
                first.steer(&[1]).unwrap();
                send(&[1, 2]);
                assert_eq!(waiting(&second), [1]);
                second.steer(&[]).unwrap();
                send(&[1]);
                assert!(waiting(&second).is_empty());
                // The first socket gets all, though the program still names the second one.
                second.steer(&[1]).unwrap();
                drop(second);
                send(&[1, 2]);
                first.steer(&[]).unwrap();
            }
            let round = [1, 2, 3, 1, 3, 2, 1, 1, 2];
            assert_eq!(
                waiting(&first),
                [&[1, 2][..], &round, &round, &round].concat()
            );
            // An empty datagram has no first byte.
            stranger.send(&[]).unwrap();
        }
    }

    #[test]
    fn a_port_that_is_not_shared_stays_alone() {
        let options = options(HERE[0].1, false);
        let first = UdpSocket::bind(Family::V4, &options).unwrap();
        assert!(first.shared_port().is_none());
        let same = SocketOptions {
            port: first.port(),
            ..options
        };
        let error = UdpSocket::open(Family::V4, &same, shares).unwrap_err();
        assert!(matches!(error, SocketError::PortInUse(_)), "{error}");
    }

    #[test]
    fn trains_end_when_nothing_waits() {
        let options = options(HERE[0].1, true);
        let mut first = UdpSocket::bind(Family::V4, &options).unwrap();
        let port = first.share_port(&options).unwrap();
        assert_eq!(port.is_gro_disabled(), !first.gro.on());
        if !first.gro.on() {
            return;
        }
        port.disable_gro(true);
        assert!(!port.is_gro_disabled(), "datagrams may wait");
        let stranger = Plain::bind("127.0.0.1:0").unwrap();
        stranger.connect(("127.0.0.1", first.port())).unwrap();
        let mut scratch = crate::udp::RecvScratch::new();
        let mut memory = vec![0; crate::udp::TRAIN_ROOM];
        let mut receive = |socket: &UdpSocket| {
            socket
                .recv_trains(&mut scratch, &mut memory, 2048, 16, |_| {})
                .is_ok()
        };
        stranger.send(&[1; 100]).unwrap();
        while receive(&first) {}
        assert!(port.is_gro_disabled());
        // However many datagrams come, long ones too, the socket does not try trains again.
        for round in 0..200 {
            let long = if round % 50 == 7 { 4000 } else { 100 };
            stranger.send(&vec![1; long]).unwrap();
            while receive(&first) {}
            assert!(port.is_gro_disabled(), "{round}");
        }
        port.disable_gro(false);
        assert!(!port.is_gro_disabled());
    }
}
