use proptest::prelude::*;

use super::monitor::event;
use super::*;
use crate::netlink::attributes;

const INDEX: u32 = 7;

fn message(kind: u8, attribute: u16, inner: &Body) -> Vec<u8> {
    let mut body = command(kind, VERSION).with(A_IFINDEX, &INDEX.to_ne_bytes());
    body.push_body(attribute, inner);
    body.payload().to_vec()
}

fn inner(attribute: u16, body: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut all = attributes(&body[4..]);
    let (_, value) = all.find(|(kind, _)| state::is(*kind, attribute)).unwrap();
    attributes(value)
        .map(|(kind, value)| (kind & !NESTED, value.to_vec()))
        .collect()
}

#[test]
fn a_peer_is_described_by_its_family_and_nothing_that_was_not_given() {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    use std::os::fd::AsFd as _;
    let peer = |remote: &str, local: &str| OvpnPeer {
        id: 5,
        socket: socket.as_fd(),
        remote: remote.parse().unwrap(),
        local: Some(local.parse().unwrap()),
        inside_v4: None,
        inside_v6: None,
    };
    let kinds = |peer: &OvpnPeer<'_>| {
        let body = message(PEER_NEW, A_PEER, &new_peer(peer));
        let found = inner(A_PEER, &body).into_iter();
        found.map(|(kind, _)| kind).collect::<Vec<_>>()
    };
    assert_eq!(
        kinds(&peer("192.0.2.1:1194", "192.0.2.2")),
        [
            PEER_ID,
            PEER_SOCKET,
            PEER_REMOTE_IPV4,
            PEER_REMOTE_PORT,
            PEER_LOCAL_IPV4
        ]
    );
    assert_eq!(
        kinds(&peer("[fe80::1%3]:1194", "fe80::2")),
        [
            PEER_ID,
            PEER_SOCKET,
            PEER_REMOTE_IPV6,
            PEER_REMOTE_IPV6_SCOPE_ID,
            PEER_REMOTE_PORT,
            PEER_LOCAL_IPV6
        ]
    );
    // The kernel refuses an address of the other family.
    let mut mixed = peer("192.0.2.1:1194", "fe80::2");
    mixed.inside_v4 = Some([10, 8, 0, 2].into());
    assert_eq!(
        kinds(&mixed),
        [
            PEER_ID,
            PEER_SOCKET,
            PEER_REMOTE_IPV4,
            PEER_REMOTE_PORT,
            PEER_VPN_IPV4
        ]
    );
}

#[test]
fn an_address_that_is_not_given_is_taken_away() {
    let addresses = |v4: Option<Ipv4Addr>, v6: Option<Ipv6Addr>| {
        inner(A_PEER, &message(PEER_SET, A_PEER, &inside(5, v4, v6)))
    };
    let id = (PEER_ID, 5u32.to_ne_bytes().to_vec());
    let v6: Ipv6Addr = "fd00::2".parse().unwrap();
    assert_eq!(
        addresses(None, Some(v6)),
        [
            id.clone(),
            (PEER_VPN_IPV4, vec![0; 4]),
            (PEER_VPN_IPV6, v6.octets().to_vec())
        ]
    );
    assert_eq!(
        addresses(Some([10, 8, 0, 2].into()), None),
        [
            id,
            (PEER_VPN_IPV4, vec![10, 8, 0, 2]),
            (PEER_VPN_IPV6, vec![0; 16])
        ]
    );
}

#[test]
fn a_key_has_both_directions_and_does_not_show_them() {
    let direction = |byte: u8| OvpnDirection {
        key: if byte == 1 { &[1; 32] } else { &[2; 32] },
        nonce_tail: if byte == 1 { &[3; 8] } else { &[4; 8] },
    };
    let key = OvpnKey {
        peer: 5,
        slot: OvpnSlot::Secondary,
        key_id: 3,
        cipher: OvpnCipher::ChaCha20Poly1305,
        encrypt: direction(1),
        decrypt: direction(2),
    };
    let body = message(KEY_NEW, A_KEYCONF, &new_key(&key));
    let found = inner(A_KEYCONF, &body);
    let number = |kind| {
        let (_, value) = found.iter().find(|(it, _)| *it == kind).unwrap();
        u32::from_ne_bytes(value[..].try_into().unwrap())
    };
    assert_eq!(
        [
            number(KEY_PEER_ID),
            number(KEY_SLOT),
            number(KEY_ID),
            number(KEY_CIPHER_ALG)
        ],
        [5, 1, 3, 2]
    );
    let directions = |kind: u16| {
        let (_, value) = found.iter().find(|(it, _)| *it == kind & !NESTED).unwrap();
        let all = attributes(value).map(|(_, value)| value.to_vec());
        all.collect::<Vec<_>>()
    };
    assert_eq!(directions(KEY_ENCRYPT_DIR), [vec![1; 32], vec![3; 8]]);
    assert_eq!(directions(KEY_DECRYPT_DIR), [vec![2; 32], vec![4; 8]]);
    assert!(!format!("{key:?}").contains("1, 1"));
}

#[test]
fn figures_are_read_in_either_width() {
    let mut peer = Body::attributes()
        .with(PEER_ID, &9u32.to_ne_bytes())
        .with(16, &1_000_000u32.to_ne_bytes())
        .with(21, &(1u64 << 40).to_ne_bytes());
    push_way(
        &mut peer,
        "[2001:db8::1]:1194".parse().unwrap(),
        Some("2001:db8::2".parse().unwrap()),
    );
    let state = state::parse(&message(PEER_GET, A_PEER, &peer)).unwrap();
    assert_eq!(state.id, 9);
    assert_eq!(state.inside.rx_bytes, 1_000_000);
    assert_eq!(state.outside.tx_bytes, 1 << 40);
    assert_eq!(state.remote, Some("[2001:db8::1]:1194".parse().unwrap()));
    assert_eq!(state.local, Some("2001:db8::2".parse().unwrap()));
}

#[test]
fn news_of_other_interfaces_are_not_ours() {
    let peer = Body::attributes()
        .with(15, &2u32.to_ne_bytes())
        .with(PEER_ID, &4u32.to_ne_bytes());
    // The kernel writes this attribute without the flag for nested attributes.
    let gone = message(5, A_PEER & !NESTED, &peer);
    let expired = OvpnEvent::PeerGone {
        peer: 4,
        why: PeerEnd::Expired,
    };
    assert_eq!(event(&gone, INDEX), Some(expired));
    assert_eq!(event(&gone, INDEX + 1), None);

    let key = Body::attributes()
        .with(KEY_PEER_ID, &4u32.to_ne_bytes())
        .with(KEY_ID, &6u16.to_ne_bytes());
    let worn = OvpnEvent::KeyWorn { peer: 4, key_id: 6 };
    assert_eq!(
        event(&message(9, A_KEYCONF & !NESTED, &key), INDEX),
        Some(worn)
    );

    let mut peer = Body::attributes().with(PEER_ID, &4u32.to_ne_bytes());
    push_way(&mut peer, "192.0.2.9:4000".parse().unwrap(), None);
    let floated = OvpnEvent::Floated {
        peer: 4,
        to: "192.0.2.9:4000".parse().unwrap(),
    };
    assert_eq!(event(&message(11, A_PEER, &peer), INDEX), Some(floated));
}

#[test]
fn without_the_module_it_is_said_that_nothing_was_found() {
    // If the kernel has `ovpn`, it reports a missing interface.
    match Ovpn::open(u32::MAX >> 1) {
        Err(error) => assert!(error.is_not_found(), "{error}"),
        Ok(mut ovpn) => assert!(ovpn.peer(1).is_err()),
    }
}

proptest! {
    #[test]
    fn no_bytes_make_a_parser_panic(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = state::parse(&body);
        let _ = event(&body, INDEX);
    }

    #[test]
    fn a_message_that_is_cut_off_makes_no_parser_panic(
        kind in 0u8..13,
        cut in 0usize..120,
        id in any::<u32>(),
        noise in proptest::collection::vec((0u16..30, proptest::collection::vec(any::<u8>(), 0..20)), 0..6),
    ) {
        let mut peer = Body::attributes().with(PEER_ID, &id.to_ne_bytes());
        for (kind, value) in noise {
            peer.push(kind, &value);
        }
        for attribute in [A_PEER, A_KEYCONF] {
            let whole = message(kind, attribute, &peer);
            let _ = state::parse(&whole[..whole.len().min(cut)]);
            let _ = event(&whole[..whole.len().min(cut)], INDEX);
            // Events of another interface are ignored, whatever they contain.
            prop_assert_eq!(event(&whole, INDEX + 1), None);
        }
    }
}
