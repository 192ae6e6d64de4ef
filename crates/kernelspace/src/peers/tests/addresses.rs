//! Where packets leave from and go to.

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
        assert_eq!(told(&mut peers, line(3)), without, "{address:?}");
    }
}
