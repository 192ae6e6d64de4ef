//! A WireGuard tunnel between two hosts.

use crate::peer::{
    Keys, PeerOptions, PeerStatus, PresharedKey, RunningPeer, WgPeer, WireGuardPeer,
};
use crate::{Host, LinkOptions};

use super::{
    A4, A6, B4, B6, Net, PORT_A, PORT_B, WG, interface, ip, millrace, peer, until, usable,
};

/// Settings of a tunnel.
pub struct Setup {
    /// The program of end A.
    pub a: Box<dyn WireGuardPeer>,
    /// The program of end B.
    pub b: Box<dyn WireGuardPeer>,
    /// Start options of end A.
    pub options_a: PeerOptions,
    /// Start options of end B.
    pub options_b: PeerOptions,
    /// Whether the outer family is IPv6.
    pub v6: bool,
    /// MTU of the interfaces, in bytes.
    pub mtu: u32,
    /// Whether to use a preshared key.
    pub preshared: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            a: Box::new(millrace()),
            b: Box::new(millrace()),
            options_a: PeerOptions::default(),
            options_b: PeerOptions::default(),
            v6: false,
            mtu: 1420,
            preshared: false,
        }
    }
}

/// A tunnel between the hosts of a [`Net`]. End A knows B's endpoint, B waits for a handshake. Inside, A is 10.0.0.1
/// and fd01::1, B is 10.0.0.2 and fd01::2.
pub struct Tunnel<'h> {
    /// The end that knows the other's endpoint.
    pub a: RunningPeer<'h>,
    /// The end that waits for a handshake.
    pub b: RunningPeer<'h>,
    /// Keys of A.
    pub keys_a: Keys,
    /// Keys of B.
    pub keys_b: Keys,
}

impl<'h> Tunnel<'h> {
    /// Makes a tunnel between the hosts of a [`Net`].
    pub fn new(net: &'h Net, setup: &Setup) -> Self {
        Self::between(&net.a, &net.b, &net.link, setup)
    }

    /// Makes a tunnel between any two hosts on a link.
    pub fn between(a: &'h Host, b: &'h Host, link: &LinkOptions, setup: &Setup) -> Self {
        let (keys_a, keys_b) = (Keys::generate(a).unwrap(), Keys::generate(b).unwrap());
        let psk = setup.preshared.then(|| PresharedKey::generate(a).unwrap());
        let at_a = setup.a.start(a, WG, &setup.options_a).unwrap();
        let at_b = setup.b.start(b, WG, &setup.options_b).unwrap();
        let to = if setup.v6 { link.b6() } else { link.b4() };
        let mut b_of_a = WgPeer::new(&keys_b.public)
            .at((to, PORT_B).into())
            .allow(ip(B4), 32)
            .allow(ip(B6), 128);
        let mut a_of_b = WgPeer::new(&keys_a.public)
            .allow(ip(A4), 32)
            .allow(ip(A6), 128);
        b_of_a.preshared_key = psk.clone();
        a_of_b.preshared_key = psk;
        at_a.configure(&interface(&keys_a, PORT_A, vec![b_of_a]))
            .unwrap();
        at_b.configure(&interface(&keys_b, PORT_B, vec![a_of_b]))
            .unwrap();
        at_a.bring_up(&[(ip(A4), 24), (ip(A6), 64)], setup.mtu)
            .unwrap();
        at_b.bring_up(&[(ip(B4), 24), (ip(B6), 64)], setup.mtu)
            .unwrap();
        usable(a, A6);
        usable(b, B6);
        Self {
            a: at_a,
            b: at_b,
            keys_a,
            keys_b,
        }
    }

    /// A's status of its peer B.
    pub fn at_a(&self) -> PeerStatus {
        peer(&self.a, &self.keys_b)
    }

    /// B's status of its peer A.
    pub fn at_b(&self) -> PeerStatus {
        peer(&self.b, &self.keys_a)
    }

    /// Waits until both counters of both ends have not changed for several checks in a row, and returns (received,
    /// sent) of A and of B.
    pub fn settled(&self) -> [(u64, u64); 2] {
        let look = || [self.at_a(), self.at_b()].map(|status| (status.received, status.sent));
        let (mut last, mut same) = (look(), 0);
        until("counters that stand still", || {
            let now = look();
            same = if now == last { same + 1 } else { 0 };
            last = now;
            same >= 10
        });
        last
    }
}
