//! Events for control from the kernel's news.

use super::*;
use netio::netlink::{OvpnEvent, PeerEnd};

fn one_that_seals() -> Peers<Simulated> {
    let mut peers = one_with_keys();
    peers.send_with(PEER, SESSION).unwrap();
    peers
}

#[test]
fn control_is_told_what_it_has_to_act_on() {
    let gone = |peer, why| OvpnEvent::PeerGone { peer, why };
    let worn = |peer| OvpnEvent::KeyWorn { peer, key_id: 0 };
    let to = line(9).endpoint.addr;
    let moved = Notice::Moved { line: line(9).id };
    let floated = |peer| OvpnEvent::Floated { peer, to };
    let refresh = Notice::Refresh { index: SESSION };
    let other = NUMBER + 1;
    for (event, told) in [
        (gone(NUMBER, PeerEnd::Expired), Some(Notice::Silent)),
        (gone(NUMBER, PeerEnd::Transport), Some(Notice::Failed)),
        (gone(NUMBER, PeerEnd::Other(77)), Some(Notice::Failed)),
        (gone(NUMBER, PeerEnd::Asked), None),
        (gone(NUMBER, PeerEnd::Teardown), None),
        (gone(other, PeerEnd::Expired), None),
        (worn(NUMBER), Some(refresh)),
        (worn(other), None),
        (floated(NUMBER), Some(moved)),
        (floated(other), None),
        (OvpnEvent::Overrun, None),
    ] {
        let mut peers = one_that_seals();
        let told = told.map(|notice| (PEER, notice));
        assert_eq!(peers.hear(event), told, "{event:?}");
        // The kernel removes a peer only once.
        if let OvpnEvent::PeerGone { .. } = event {
            assert_eq!(peers.hear(event), None, "{event:?}");
        }
    }
}

#[test]
fn a_peer_without_keys_that_seal_has_none_that_run_out() {
    let mut peers = one_that_seals();
    peers.remove_keys(PEER, SESSION);
    let worn = OvpnEvent::KeyWorn {
        peer: NUMBER,
        key_id: 0,
    };
    assert_eq!(peers.hear(worn), None);
}
