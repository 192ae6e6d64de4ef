//! The kernel's OpenVPN data plane, tested with the kernel itself.

use super::{CARRIER, in_namespace};
use netio::netlink::{
    Netlink, Ovpn, OvpnCipher, OvpnDirection, OvpnEvent, OvpnKey, OvpnMode, OvpnMonitor, OvpnPeer,
    OvpnSlot, PeerEnd,
};
use netio::poll::Poller;
use std::os::fd::AsFd as _;

#[test]
#[ignore = "needs ovpn in the kernel: make test-vm, or scripts/test-kernel-plane netlink"]
fn the_kernels_openvpn_takes_a_peer_keys_and_timers_and_tells_when_it_lets_go() {
    in_namespace(|| {
        let mut netlink = Netlink::open().unwrap();
        netlink.create_ovpn("vpn", OvpnMode::ManyPeers).unwrap();
        let lo = netlink.index_of("lo").unwrap();
        netlink.set_up(lo).unwrap();
        let index = netlink.index_of("vpn").unwrap();
        netlink.set_alias(index, "a test").unwrap();
        let found = netlink.links().unwrap();
        let found: Vec<_> = found.iter().filter(|it| it.kind == "ovpn").collect();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].index, &*found[0].alias), (index, "a test"));

        let mut news = OvpnMonitor::open(index).unwrap();
        let mut ovpn = Ovpn::open(index).unwrap();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let remote = "127.0.0.1:4000".parse().unwrap();
        let mut peer = OvpnPeer {
            id: 7,
            socket: socket.as_fd(),
            remote,
            local: None,
            inside_v4: None,
            inside_v6: None,
        };
        // In multi-peer mode every peer needs an inner address.
        assert!(ovpn.add_peer(&peer).is_err());
        peer.inside_v4 = Some([10, 8, 0, 2].into());
        ovpn.add_peer(&peer).unwrap();
        assert!(ovpn.add_peer(&peer).unwrap_err().is_exists());
        let state = ovpn.peer(7).unwrap();
        assert_eq!((state.id, state.remote), (7, Some(remote)));

        let direction = |key: &'static [u8]| OvpnDirection {
            key,
            nonce_tail: &[3; 8],
        };
        for (key_id, cipher, len) in [
            (0, OvpnCipher::AesGcm, 32),
            (1, OvpnCipher::AesGcm, 16),
            (2, OvpnCipher::ChaCha20Poly1305, 32),
        ] {
            ovpn.add_key(&OvpnKey {
                peer: 7,
                slot: OvpnSlot::Secondary,
                key_id,
                cipher,
                encrypt: direction(&[1; 32][..len]),
                decrypt: direction(&[2; 32][..len]),
            })
            .unwrap();
            ovpn.swap_keys(7).unwrap();
        }
        ovpn.remove_key(7, OvpnSlot::Secondary).unwrap();
        ovpn.remove_key(7, OvpnSlot::Secondary).unwrap();
        let moved = "127.0.0.1:4001".parse().unwrap();
        ovpn.move_peer(7, moved, None).unwrap();
        ovpn.set_inside(7, Some([10, 8, 0, 3].into()), None)
            .unwrap();
        // The released IPv4 address is available to another peer.
        let v6 = "fd00::3".parse().unwrap();
        ovpn.set_inside(7, None, Some(v6)).unwrap();
        let other = OvpnPeer {
            id: 8,
            remote: "127.0.0.1:4002".parse().unwrap(),
            inside_v4: Some([10, 8, 0, 3].into()),
            ..peer
        };
        ovpn.add_peer(&other).unwrap();
        ovpn.remove_peer(8).unwrap();
        let other_gone = OvpnEvent::PeerGone {
            peer: 8,
            why: PeerEnd::Asked,
        };
        assert_eq!(news.next().unwrap(), Some(other_gone));
        assert_eq!(ovpn.peer(7).unwrap().remote, Some(moved));
        // Both times may be at most one day.
        ovpn.keep_alive(7, 86_400, 86_400).unwrap();
        assert!(ovpn.keep_alive(7, 86_401, 10).is_err());
        assert!(ovpn.keep_alive(7, 10, 86_401).is_err());
        ovpn.keep_alive(7, 1, 1).unwrap();
        let poller = Poller::new().unwrap();
        poller.add(&news, 0).unwrap();
        assert!(!poller.wait(Some(CARRIER)).unwrap().is_empty());
        let gone = |why| OvpnEvent::PeerGone { peer: 7, why };
        assert_eq!(news.next().unwrap(), Some(gone(PeerEnd::Expired)));
        ovpn.add_peer(&peer).unwrap();
        ovpn.remove_peer(7).unwrap();
        assert!(!poller.wait(Some(CARRIER)).unwrap().is_empty());
        assert_eq!(news.next().unwrap(), Some(gone(PeerEnd::Asked)));
        netlink.delete_link(index).unwrap();
        assert!(ovpn.peer(7).is_err());
    });
}
