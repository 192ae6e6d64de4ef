//! Retransmission of lost packets between two ends that balance packets over several lines.

use crate::lines::{inner, site};
use crate::site::{PEER, Site};
use plane::{DataPlane, LINES_MAX, LineMode, Moving, Reorder};

/// Builds a retransmission request without its header: `(first, count)` runs of packet numbers.
fn request(runs: &[(u64, u16)]) -> Vec<u8> {
    let mut payload = vec![0, b'M', b'R', 1];
    for (first, count) in runs {
        payload.extend(first.to_be_bytes());
        payload.extend(count.to_be_bytes());
    }
    payload
}

/// Builds a data plane that balances packets over both lines.
fn sharing() -> Site {
    let site = site(Moving::Stay, &[0, 1]);
    let mut shares = [0; LINES_MAX];
    shares[..2].copy_from_slice(&[1, 1]);
    site.plane
        .set_line_mode(PEER, LineMode::BalancePackets(shares));
    site
}

#[test]
fn what_the_peer_asks_for_is_sent_by_large_lines_and_what_it_asks_for_again_by_each() {
    let site = sharing();
    let mut shares = [0; LINES_MAX];
    shares[..2].copy_from_slice(&[1, 20]);
    site.plane
        .set_line_mode(PEER, LineMode::BalancePackets(shares));
    for mark in 0..4 {
        site.host_sends(&inner(6, 1, mark));
        assert_eq!(site.peer_receives().3, mark);
    }
    for (turn, lines) in [(0, &[1][..]), (1, &[0, 1]), (2, &[0, 1])] {
        site.sends_from(&site.peer, 1, 24, (turn, &request(&[(1, 2)])));
        let mut got: Vec<_> = (0..2 * lines.len()).map(|_| site.peer_receives()).collect();
        got.sort_unstable();
        let of_line = |line: &u8| [(site.port(*line), 9, 1, 1), (site.port(*line), 9, 2, 2)];
        let mut expected: Vec<_> = lines.iter().flat_map(of_line).collect();
        expected.sort_unstable();
        assert_eq!(got, expected);
    }
    // Packets already sent three times, numbers never sent, and numbers out of range are not resent.
    let all = [(1, 1), (500, u16::MAX), (u64::MAX, u16::MAX)];
    site.sends_from(&site.peer, 0, 24, (3, &request(&all)));
    site.host_sends(&inner(6, 1, 9));
    assert_eq!(site.peer_receives().3, 9);
    assert_eq!(site.drops("inner_malformed"), 0);
}

/// A batch with packets of many lengths has many trains in a run.
#[test]
fn each_packet_is_kept_by_its_own_number() {
    let site = sharing();
    let lens = [300, 1200, 200, 1200, 1200, 100, 1100];
    let mut sent = Vec::new();
    for turn in 0..10_u8 {
        for (at, len) in lens.iter().enumerate() {
            let mut packet = inner(6, 1, turn * 10 + at as u8);
            let end = packet.split_off(packet.len() - 1);
            packet.truncate(*len);
            packet.extend(end);
            let len = packet.len() as u16;
            packet[2..4].copy_from_slice(&len.to_be_bytes());
            site.host_sends(&packet);
        }
    }
    for _ in 0..10 * lens.len() {
        let (_, _, number, mark) = site.peer_receives();
        sent.push((number, mark));
    }
    sent.sort_unstable();
    // Few packets at a time: each is resent over both lines, and the peer's socket buffer must hold them all.
    let mut again = Vec::new();
    for turn in 0..7_u16 {
        let first = u64::from(turn) * 10;
        let ask = request(&[(first, 4), (first + 4, 6)]);
        site.sends_from(&site.peer, 0, 24, (turn, &ask));
        again.extend((0..20).map(|_| site.peer_receives()).map(|it| (it.2, it.3)));
    }
    again.sort_unstable();
    again.dedup();
    assert_eq!(again, sent);
}

#[test]
fn nothing_is_kept_where_packets_are_not_shared_out() {
    let site = site(Moving::Stay, &[0, 1]);
    site.outward(1);
    assert_eq!(site.peer_receives().3, 1);
    site.sends_from(&site.peer, 0, 24, (0, &request(&[(0, 1)])));
    site.outward(2);
    assert_eq!(site.peer_receives().3, 2);
}

#[test]
fn a_number_that_all_lines_have_passed_is_asked_for() {
    let site = sharing();
    site.plane.set_reorder(PEER, Some(Reorder::default()));
    let sends = |line, number: u16| {
        let mut packet = inner(6, 1, number as u8);
        // Addresses: from the peer to this host.
        packet[12..20].copy_from_slice(&[10, 0, 0, 2, 10, 0, 0, 1]);
        site.sends_from(&site.peer, line, 24, (number, &packet));
    };
    for number in 0..4 {
        sends(number as u8 % 2, number);
        assert_eq!(site.written(), number as u8);
    }
    // Number 4 is lost.
    for number in 5..9 {
        sends(number as u8 % 2, number);
    }
    let mut datagram = [0; 2000];
    let (len, _) = site.peer.recv_from(&mut datagram).unwrap();
    assert_eq!(datagram[3..len], request(&[(4, 1)]));
    sends(0, 4);
    let written: Vec<u8> = (0..5).map(|_| site.written()).collect();
    assert_eq!(written, [4, 5, 6, 7, 8]);
    site.until("it is counted", |site| {
        let order = site.plane.peer_lines(PEER).order;
        (order.asked, order.repaired, order.lost()) == (1, 1, 0)
    });
}
