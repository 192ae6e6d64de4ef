//! Source and destination addresses of packets.

use super::*;
use plane::Source;

fn told(peers: &mut Peers<Simulated>, line: Line) -> Option<IpAddr> {
    peers.set_line(PEER, line).unwrap();
    known(peers).local
}

#[test]
fn packets_leave_from_the_address_that_was_called_or_the_socket_is_bound_to() {
    let bound: IpAddr = [127, 0, 0, 1].into();
    let called: IpAddr = [192, 0, 2, 77].into();
    let calling = |last| {
        let mut line = line(last);
        line.endpoint.source = Some(Source {
            ip: called,
            ifindex: 1,
        });
        line
    };
    for (address, without) in [
        (Some(bound), Some(bound)),
        (None, None),
        (Some([0; 4].into()), None),
    ] {
        let mut peers = peers(false);
        peers.set_sockets(sockets(address));
        peers.add(PEER);
        peers.set_line(PEER, line(1)).unwrap();
        give(&mut peers, 0);
        assert_eq!(known(&peers).local, without, "{address:?}");
        assert_eq!(told(&mut peers, calling(2)), Some(called));
        // The peer moves, and still sends to the same address.
        let to = ([192, 0, 2, 9], 4).into();
        assert_eq!(peers.floated(NUMBER, to), Some(PEER));
        let source = peers.line(PEER).unwrap().endpoint.source;
        assert_eq!(source.map(|it| it.ip), Some(called));
        assert_eq!(told(&mut peers, line(3)), without, "{address:?}");
    }
}

#[test]
fn a_peer_that_was_followed_without_a_word_is_found_out_once() {
    let mut peers = one_with_keys();
    let now = Instant::now();
    assert_eq!(peers.look(PEER, now).unwrap().1, None);
    let to: SocketAddr = ([192, 0, 2, 9], 4).into();
    counted(&mut peers).remote = Some(to);
    let moved = Notice::Moved { line: line(1).id };
    let (peer, untold) = peers.look(PEER, now).unwrap();
    assert_eq!(peer.line.unwrap().endpoint, Endpoint::new(to));
    assert_eq!(untold, Some(moved));
    assert_eq!(peers.look(PEER, now).unwrap().1, None);
    // A look does not report again an address that the kernel has reported.
    let to = ([192, 0, 2, 10], 4).into();
    counted(&mut peers).remote = Some(to);
    assert_eq!(peers.floated(NUMBER, to), Some(PEER));
    assert_eq!(peers.look(PEER, now).unwrap().1, None);
    // Going back to the old address needs a request to the kernel.
    peers.set_line(PEER, line(1)).unwrap();
    let known = known(&peers).remote;
    assert_eq!(known, Some(line(1).endpoint.addr));
    assert_eq!(peers.look(PEER, now).unwrap().1, None);
}

#[test]
fn an_address_of_ipv4_in_ipv6_is_no_other() {
    let mapped: SocketAddr = "[::ffff:192.0.2.1]:1194".parse().unwrap();
    let plain = "192.0.2.1:1194".parse().unwrap();
    assert!(is_same(mapped, plain));
    assert!(!is_same(mapped, "192.0.2.1:1195".parse().unwrap()));
    assert!(!is_same(plain, "192.0.2.2:1194".parse().unwrap()));
}
