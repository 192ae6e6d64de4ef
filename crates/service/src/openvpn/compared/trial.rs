//! Measures one data plane, at both ends of a tunnel between two network namespaces. The threads that make the namespaces
//! end with the measurement, and the namespaces with them.

use crate::openvpn::device::{SocketPlane, everywhere};
use crate::openvpn::{compared::Speed, kernel_plane};
use crate::plane_options::plane_options;
use crate::tun_probe::{TunProbe, tun_options};
use crate::wireguard::SocketPlan;
use config::openvpn::Cipher;
use config::settings::DataplaneSettings;
use crypto::Digest;
use engine::Sockets;
use netio::netlink::Netlink;
use netio::tun::TunVerdict;
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike as _};
use openvpn::data::format::Shape;
use openvpn::data::protocol::{Material, session, session_keys};
use openvpn::data::wire::{Layout, OpenVpn as Packets};
use openvpn::keys::KeyMaterial;
use openvpn::session::DataKeys;
use plane::{Control, Endpoint, Line, LineId, Moving, Notice, PeerId, Sender};
use std::error::Error;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Name of the interface in each of the two namespaces.
const NAME: &str = "tune";

/// The interface's MTU, which suits most uplinks.
const MTU: u16 = 1420;

/// The inner addresses of both ends.
const INSIDE: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 93, 7, 1), Ipv4Addr::new(10, 93, 7, 2)];

/// The only peer of each end, and the number in its packets.
const PEER: PeerId = PeerId(0);
const NUMBER: u32 = 1;

/// The longest wait for a packet before the tunnel counts as broken.
const PATIENCE: Duration = Duration::from_secs(5);

/// The wait for an answer; then the packet counts as lost and is sent again.
const ANSWER: Duration = Duration::from_millis(200);

/// Bytes of a single packet's payload.
const SINGLE: usize = 64;

/// Bytes of each write and read of the stream.
const BLOCK: usize = 64 << 10;

/// Measures a data plane, `load` for each of two loads.
///
/// # Errors
/// The machine has no such data plane, or this process may not use it.
pub(super) fn run(kernel: bool, cipher: Cipher, load: Duration) -> Result<Speed, String> {
    let settings = DataplaneSettings::default();
    // Before any namespace is made: the test makes one of its own.
    let tun = match kernel {
        true => TunVerdict::not_run("no TUN"),
        false => TunProbe::start(&settings).verdict(),
    };
    let near = move || near(kernel, cipher, load, &settings, &tun);
    in_thread(near).map_err(|error| error.to_string())
}

/// Calls `call` on a thread of its own, which may leave the network namespace.
fn in_thread<T: Send + 'static>(call: impl FnOnce() -> Outcome<T> + Send + 'static) -> Outcome<T> {
    let thread = thread::Builder::new().name("tune".to_owned()).spawn(call)?;
    match thread.join() {
        Ok(result) => result,
        Err(_) => Err("the measurement has failed".into()),
    }
}

fn near(
    kernel: bool,
    cipher: Cipher,
    load: Duration,
    settings: &DataplaneSettings,
    tun: &TunVerdict,
) -> Outcome<Speed> {
    own_namespace()?;
    let mut netlink = Netlink::open()?;
    let loopback = netlink.index_of("lo")?;
    netlink.set_up(loopback)?;
    // Both sockets belong to this namespace, so that the outer packets need no device but the loopback.
    let udp = match kernel {
        true => kernel_plane::udp_settings(settings.clone()),
        false => settings.clone(),
    };
    let mut plan = SocketPlan::new(&udp, None);
    plan.address = Some(Ipv4Addr::LOCALHOST.into());
    let sockets = [plan.open()?, plan.open()?];
    let outer: Vec<SocketAddr> = sockets
        .iter()
        .flat_map(|it| &it.v4)
        .map(|it| SocketAddr::from((Ipv4Addr::LOCALHOST, it.port())))
        .collect();
    let [to_near, to_far] = outer[..] else {
        return Err("the loopback has no IPv4".into());
    };
    let [own, others] = sockets;
    let _near = end(kernel, cipher, 0, own, to_far, settings, tun)?;
    let (far_settings, far_tun) = (settings.clone(), tun.clone());
    // Sockets and descriptors keep the far namespace after its thread has ended.
    let (_far, echo, listener) = in_thread(move || {
        own_namespace()?;
        let far = end(kernel, cipher, 1, others, to_near, &far_settings, &far_tun)?;
        let echo = UdpSocket::bind((INSIDE[1], 0))?;
        let listener = TcpListener::bind((INSIDE[1], 0))?;
        Ok((far, echo, listener))
    })?;
    Ok(Speed {
        single: singly(&echo, load)?,
        bulk: in_bulk(&listener, load)?,
    })
}

fn own_namespace() -> Outcome<()> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(|error| {
        format!("no network namespace of its own ({error}); run millrace tune as root")
    })?;
    Ok(())
}

/// Makes one end of the tunnel in the thread's namespace. Dropping it removes the interface.
fn end(
    kernel: bool,
    cipher: Cipher,
    side: usize,
    sockets: Sockets,
    remote: SocketAddr,
    settings: &DataplaneSettings,
    tun: &TunVerdict,
) -> Outcome<Box<SocketPlane>> {
    let control = Arc::new(Deaf);
    let plane = match kernel {
        true => kernelspace::start(Some(NAME), false, control)?.0,
        false => {
            let tun = tun.create(NAME, tun_options(settings))?;
            let packets = Packets::Client { recursive: false };
            let options = plane_options(settings, MTU.into(), false);
            userspace::openvpn(tun, packets, control, &options)?
        }
    };
    let mut netlink = Netlink::open()?;
    let index = netlink.index_of(NAME)?;
    netlink.set_mtu(index, MTU.into())?;
    plane.set_mtu(MTU.into());
    netlink.add_address(index, IpAddr::V4(INSIDE[side]), 24, None)?;
    netlink.set_up(index)?;
    plane.open_line(LineId::FIRST, sockets)?;
    plane.add_peer(PEER, Moving::Stay);
    plane.set_line(PEER, Line::udp(Endpoint::new(remote)));
    plane.set_sender(PEER, Sender::Address(remote), session(PEER, 0));
    let keys = session_keys(PEER, material(cipher, side), Instant::now());
    let added = plane.add_keys(PEER, keys);
    added.map_err(|error| error.to_string())?;
    plane.send_with(PEER, session(PEER, 0));
    plane.change_routes(&everywhere(PEER));
    Ok(plane)
}

/// The keys of one side. They need not be secret: the packets stay within this process's namespaces.
fn material(cipher: Cipher, side: usize) -> Material {
    let [send, receive] = [side, 1 - side].map(|of| KeyMaterial {
        cipher: [of as u8 + 1; 64],
        hmac: [of as u8 + 3; 64],
    });
    Material {
        keys: Box::new(DataKeys {
            key_id: 0,
            cipher,
            auth: Digest::Sha256,
            layout: Layout::V2 { peer_id: NUMBER },
            send,
            receive,
        }),
        shape: Shape::default(),
        allow_insecure: false,
    }
}

/// A control that needs to know nothing.
struct Deaf;

impl Control for Deaf {
    fn datagram(&self, _: Line, _: &[u8]) -> bool {
        false
    }

    fn notify(&self, _: PeerId, _: Notice) {}

    fn device_gone(&self) {}
}

/// Single packets a second, there and back.
fn singly(echo: &UdpSocket, load: Duration) -> Outcome<u64> {
    let near = UdpSocket::bind((INSIDE[0], 0))?;
    for socket in [&near, echo] {
        socket.set_read_timeout(Some(ANSWER))?;
    }
    near.connect(echo.local_addr()?)?;
    let mut memory = [0; SINGLE];
    let mut turn = || -> io::Result<()> {
        near.send(&[0; SINGLE])?;
        let (_, from) = echo.recv_from(&mut memory)?;
        echo.send_to(&[0; SINGLE], from)?;
        near.recv(&mut memory).map(drop)
    };
    let (mut begin, mut turns, mut heard) = (Instant::now(), 0u64, false);
    let mut last = begin;
    loop {
        match turn() {
            // The first answers come before the measurement: routes and caches are cold.
            Ok(()) if !heard => (begin, heard) = (Instant::now(), true),
            Ok(()) => turns += 1,
            Err(_) if last.elapsed() < PATIENCE => continue,
            Err(error) => return Err(format!("no packet passed: {error}").into()),
        }
        last = Instant::now();
        let elapsed = begin.elapsed();
        if heard && elapsed >= load {
            // Each turn is one packet in each direction.
            return Ok(a_second(turns * 2, elapsed));
        }
    }
}

/// Bits a second of one TCP stream.
fn in_bulk(listener: &TcpListener, load: Duration) -> Outcome<u64> {
    // The fields have other widths on 32-bit systems.
    let patience = TimeVal::seconds(PATIENCE.as_secs().cast_signed());
    setsockopt(listener, sockopt::ReceiveTimeout, &patience)?;
    let mut near = TcpStream::connect_timeout(&listener.local_addr()?, PATIENCE)?;
    near.set_write_timeout(Some(PATIENCE))?;
    let (mut far, _) = listener.accept()?;
    far.set_read_timeout(Some(PATIENCE))?;
    thread::scope(|scope| {
        let reader = scope.spawn(move || -> io::Result<u64> {
            let mut memory = vec![0; BLOCK];
            let mut bytes = 0;
            loop {
                match far.read(&mut memory)? {
                    0 => return Ok(bytes),
                    count => bytes += count as u64,
                }
            }
        });
        let begin = Instant::now();
        let block = vec![0; BLOCK];
        let mut written = Ok(());
        while written.is_ok() && begin.elapsed() < load {
            written = near.write_all(&block);
        }
        // The reader ends when the stream does.
        drop(near);
        let read = reader.join().map_err(|_| "the reader has failed")?;
        written?;
        Ok(a_second(read? * 8, begin.elapsed()))
    })
}

fn a_second(count: u64, elapsed: Duration) -> u64 {
    (count as f64 / elapsed.as_secs_f64()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_within_the_machine_has_a_speed() {
        let private = in_thread(own_namespace).map_err(|error| error.to_string());
        if lab::require(private).is_none() {
            return;
        }
        for cipher in crate::openvpn::compared::MEASURED {
            let speed = run(false, cipher, Duration::from_millis(50)).unwrap();
            assert!(speed.bulk > 0 && speed.single > 0, "{speed:?}");
        }
    }

    /// Where the kernel has no `ovpn`, the measurement says so; else it measures.
    #[test]
    fn the_kernel_is_measured_or_the_reason_is_told() {
        let private = in_thread(own_namespace).map_err(|error| error.to_string());
        if lab::require(private).is_none() {
            return;
        }
        match run(true, Cipher::Aes256Gcm, Duration::from_millis(50)) {
            Ok(speed) => {
                // scripts/machine-kernel-plane looks for it.
                println!("the kernel: {speed:?}");
                assert!(speed.bulk > 0 && speed.single > 0, "{speed:?}");
            }
            Err(why) => assert!(
                why.contains("ovpn") || why.contains("CAP_NET_ADMIN"),
                "{why}"
            ),
        }
    }
}
