//! The WireGuard interface beside which the companion runs: the kernel's, or that of a program with a configuration
//! socket. Both keep one preshared key for each peer, and use it from the next handshake on.

use config::types::{AllowedIp, Key32};
use crypto::x25519::PrivateKey;
use netio::netlink::{Netlink, NetlinkError, WireGuard};
use std::io::{self, Read, Write as _};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;
use zeroize::Zeroizing;

/// Directory of the configuration sockets.
const UAPI: &str = "/var/run/wireguard";

/// How long the program may take for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Longest answer, in bytes: room for 65,536 peers.
const ANSWER_MAX: usize = 64 << 20;

/// Why an interface could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// The kernel has no such interface, or refused the request.
    #[error(transparent)]
    Kernel(#[from] NetlinkError),
    /// The interface belongs neither to the kernel's WireGuard nor to a program.
    #[error(
        "{0} is no WireGuard interface: neither the kernel nor a program in {UAPI} has it; bring it up first"
    )]
    Other(String),
    /// Millrace serves the interface.
    #[error("{0} is served by Millrace itself; name an interface of the kernel or another program")]
    Millrace(String),
    /// The program's socket failed.
    #[error("{path}: {source}")]
    Socket {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// An interface with its peers, as read.
#[derive(Clone, Debug, Default)]
pub(super) struct Device {
    /// The interface's public key; `None` without a private key.
    pub(super) public_key: Option<Key32>,
    pub(super) peers: Vec<Peer>,
}

/// A peer, as read.
#[derive(Clone, Debug, Default)]
pub(super) struct Peer {
    pub(super) public_key: Key32,
    /// The key of the next handshake; all zero for none.
    pub(super) preshared_key: Key32,
    /// Time of the last handshake, since 1970; zero if there was none.
    pub(super) last_handshake: Duration,
    /// Bytes received and sent, handshakes included.
    pub(super) bytes: [u64; 2],
    pub(super) allowed_ips: Vec<AllowedIp>,
}

/// Access to an interface.
pub(super) enum Interface {
    Kernel(WireGuard),
    Program(PathBuf),
}

impl Interface {
    pub(super) fn open(ifname: &str) -> Result<Self, InterfaceError> {
        if UnixStream::connect(crate::status::socket_path(ifname)).is_ok() {
            return Err(InterfaceError::Millrace(ifname.to_owned()));
        }
        let path = PathBuf::from(UAPI).join(format!("{ifname}.sock"));
        if UnixStream::connect(&path).is_ok() {
            return Ok(Self::Program(path));
        }
        let index = Netlink::open()?.index_of(ifname)?;
        let kernel = WireGuard::open(index);
        let mut kernel = kernel.map_err(|_| InterfaceError::Other(ifname.to_owned()))?;
        match kernel.device() {
            Err(error) if error.is_permission() => Err(error.into()),
            Err(_) => Err(InterfaceError::Other(ifname.to_owned())),
            Ok(_) => Ok(Self::Kernel(kernel)),
        }
    }

    /// Reads the interface and its peers.
    pub(super) fn read(&mut self) -> Result<Device, InterfaceError> {
        match self {
            Self::Kernel(kernel) => Ok(of_kernel(kernel.device()?)),
            Self::Program(path) => {
                let answer = ask(path, b"get=1\n\n");
                answer.map(|it| parse(&it)).map_err(failed(path))
            }
        }
    }

    /// Sets the preshared key of the next handshakes with a peer, if the interface has that peer.
    pub(super) fn set_preshared_key(
        &mut self,
        peer: &Key32,
        key: &Key32,
    ) -> Result<(), InterfaceError> {
        match self {
            Self::Kernel(kernel) => Ok(kernel.set_preshared_key(peer.as_bytes(), key.as_bytes())?),
            Self::Program(path) => {
                let parts = [
                    "set=1\npublic_key=",
                    &peer.to_hex(),
                    "\nupdate_only=true\npreshared_key=",
                    &key.to_hex(),
                    "\n\n",
                ];
                let answer = ask(path, config::clients::joined(&parts).as_bytes());
                let refused = |answer: &str| match answer.trim_end() {
                    "errno=0" => Ok(()),
                    other => Err(io::Error::other(format!("the program answered {other:?}"))),
                };
                answer.and_then(|it| refused(&it)).map_err(failed(path))
            }
        }
    }
}

fn failed(path: &std::path::Path) -> impl FnOnce(io::Error) -> InterfaceError {
    let path = path.to_owned();
    move |source| InterfaceError::Socket { path, source }
}

fn of_kernel(device: netio::netlink::WireGuardDevice) -> Device {
    let peer = |it: netio::netlink::WireGuardPeer| Peer {
        public_key: Key32::new(it.public_key),
        preshared_key: Key32::new(*it.preshared_key),
        last_handshake: it.last_handshake,
        bytes: [it.rx_bytes, it.tx_bytes],
        allowed_ips: ranges(it.allowed_ips),
    };
    Device {
        public_key: device.public_key.map(Key32::new),
        peers: device.peers.into_iter().map(peer).collect(),
    }
}

fn ranges(ranges: Vec<(IpAddr, u8)>) -> Vec<AllowedIp> {
    let ranges = ranges.into_iter();
    ranges
        .filter_map(|(addr, prefix)| AllowedIp::new(addr, prefix).ok())
        .collect()
}

/// Sends a request and reads the answer up to its empty line.
fn ask(path: &std::path::Path, request: &[u8]) -> io::Result<Zeroizing<String>> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(request)?;
    let mut answer = Zeroizing::new(Vec::with_capacity(64 << 10));
    let mut buffer = Zeroizing::new(vec![0; 16 << 10]);
    while !answer.ends_with(b"\n\n") {
        let count = stream.read(&mut buffer)?;
        if count == 0 || answer.len() + count > ANSWER_MAX {
            let words = "the answer is cut short or too long";
            return Err(io::Error::new(io::ErrorKind::InvalidData, words));
        }
        if answer.len() + count > answer.capacity() {
            // Growing in place would leave a copy of the keys behind.
            let mut grown = Zeroizing::new(Vec::with_capacity(2 * answer.capacity()));
            grown.extend_from_slice(&answer);
            answer = grown;
        }
        answer.extend_from_slice(&buffer[..count]);
    }
    let text = str::from_utf8(&answer).map_err(io::Error::other)?;
    Ok(Zeroizing::new(text.to_owned()))
}

/// Reads the answer to `get=1`. Lines that it cannot read are skipped.
fn parse(answer: &str) -> Device {
    let mut device = Device::default();
    let (mut seconds, mut nanoseconds) = (0, 0);
    for (key, value) in answer.lines().filter_map(|line| line.split_once('=')) {
        let key32 = || Key32::from_hex(value).unwrap_or_default();
        if key == "private_key" {
            let public = PrivateKey::new(*key32().as_bytes()).public();
            device.public_key = Some(Key32::new(*public.as_bytes()));
            continue;
        }
        if key == "public_key" {
            (seconds, nanoseconds) = (0, 0);
            device.peers.push(Peer {
                public_key: key32(),
                ..Peer::default()
            });
            continue;
        }
        let Some(peer) = device.peers.last_mut() else {
            continue;
        };
        match key {
            "preshared_key" => peer.preshared_key = key32(),
            "last_handshake_time_sec" => seconds = value.parse().unwrap_or_default(),
            "last_handshake_time_nsec" => nanoseconds = value.parse().unwrap_or_default(),
            "rx_bytes" => peer.bytes[0] = value.parse().unwrap_or_default(),
            "tx_bytes" => peer.bytes[1] = value.parse().unwrap_or_default(),
            "allowed_ip" => peer.allowed_ips.extend(value.parse::<AllowedIp>()),
            _ => {}
        }
        peer.last_handshake = Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds);
    }
    // wireguard-go names its peers in another order each time.
    let peers = &mut device.peers;
    peers.sort_unstable_by(|a, b| a.public_key.as_bytes().cmp(b.public_key.as_bytes()));
    device
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::uapi::{DeviceState, PeerState, write_get};

    #[test]
    fn the_answer_of_a_program_is_read() {
        let private = PrivateKey::new([7; 32]);
        let device = DeviceState {
            private_key: Some(Key32::new(*private.as_bytes())),
            listen_port: 51820,
            ..DeviceState::default()
        };
        let peer = |last: u8| PeerState {
            public_key: Key32::new([last; 32]),
            preshared_key: (last == 2).then(|| Key32::new([9; 32])),
            last_handshake: (u64::from(last), 5),
            rx_bytes: 148,
            tx_bytes: 92,
            allowed_ips: vec![format!("10.0.0.{last}/32").parse().unwrap()],
            ..PeerState::default()
        };
        let mut answer = Vec::new();
        write_get(&mut answer, &device, [peer(3), peer(2)]).unwrap();
        let device = parse(str::from_utf8(&answer).unwrap());
        let public = *private.public().as_bytes();
        assert_eq!(device.public_key, Some(Key32::new(public)));
        let [two, three] = &device.peers[..] else {
            panic!("{device:?}");
        };
        assert_eq!(two.public_key, Key32::new([2; 32]));
        assert_eq!(two.preshared_key, Key32::new([9; 32]));
        assert_eq!(two.last_handshake, Duration::new(2, 5));
        assert_eq!(two.bytes, [148, 92]);
        assert_eq!(two.allowed_ips, ["10.0.0.2/32".parse().unwrap()]);
        assert!(three.preshared_key.is_zero());
        assert_eq!(three.last_handshake, Duration::new(3, 5));
    }

    #[test]
    fn a_damaged_answer_has_no_peers() {
        for answer in ["", "=\n", "preshared_key=x\nrx_bytes=1", "errno=0\n\n"] {
            let device = parse(answer);
            assert!(device.peers.is_empty() && device.public_key.is_none());
        }
    }
}
