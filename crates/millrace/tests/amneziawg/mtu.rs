//! The MTU of an interface that no file describes leaves room for `S4`.

use lab::acceptance::{
    A4, B4, B6, Net, Setup, Tunnel, WG, pings, pings_of, ready, tcp_both_ways, until,
};
use lab::{Host, LinkOptions};

use super::set;

fn has_mtu(host: &Host, mtu: u32) {
    let now = || host.netlink().unwrap().link(WG).unwrap().mtu;
    until(&format!("an MTU of {mtu}"), || now() == mtu);
}

#[test]
fn s4_set_over_the_socket_changes_the_mtu_unless_the_user_sets_one() {
    if !ready() {
        return;
    }
    for v6 in [false, true] {
        // The path of PPPoE.
        let net = Net::with(LinkOptions::numbered(1).mtu(1492));
        let tunnel = Tunnel::new(
            &net,
            &Setup {
                v6,
                ..Setup::default()
            },
        );
        pings(&net.a, B4, 1);
        let set_both = |s4: u32| {
            for end in [&tunnel.b, &tunnel.a] {
                set(end, &format!("s4={s4}\nrekey_timeout=1\n"));
            }
        };
        for s4 in [40, 100, 16] {
            set_both(s4);
            // The first packet after the change arrives.
            pings_of(&net.a, B4, 1, 1200);
            let mtu = 1492 - 80 - s4;
            has_mtu(&net.a, mtu);
            has_mtu(&net.b, mtu);
            pings_of(&net.a, B6, 1, mtu as usize - 48);
            pings_of(&net.b, A4, 1, mtu as usize - 28);
        }
        tcp_both_ways(&net.a, &net.b, B4, 3_000_000);
        // `awg-quick` computes an MTU without room for S4.
        net.a.set_mtu(WG, 1492 - 80).unwrap();
        has_mtu(&net.a, 1492 - 80 - 16);
        net.a.set_mtu(WG, 1300).unwrap();
        set_both(40);
        has_mtu(&net.b, 1492 - 80 - 40);
        pings(&net.a, B4, 1);
        has_mtu(&net.a, 1300);
    }
}
