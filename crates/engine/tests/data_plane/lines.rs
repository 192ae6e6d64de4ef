//! A peer over several lines at once.

use crate::site::{PEER, Site, packet, receive, route, socket};
use plane::{DataPlane, LINES_MAX, LineCounts, LineId, LineMode, LineSet, Moving, Notice, Reorder};

/// Builds a data plane whose peer has these lines and a session in both directions.
pub(crate) fn site(moving: Moving, lines: &[u8]) -> Site {
    let site = Site::new();
    assert!(site.plane.add_peer(PEER, moving));
    for line in lines {
        site.plane.set_line(PEER, site.line(*line));
    }
    site.keys(24, 9, false);
    site.plane.send_with(PEER, 24);
    site.plane.change_routes(&[route()]);
    site
}

fn both() -> LineSet {
    [LineId(0), LineId(1)].into_iter().collect()
}

/// Returns the counters of each line.
fn counts(site: &Site) -> Vec<LineCounts> {
    let lines = site.plane.peer_lines(PEER).lines;
    lines.iter().map(|line| line.counts).collect()
}

/// Builds an inner UDP or TCP packet from this host to the peer's host.
pub(crate) fn inner(protocol: u8, port: u8, mark: u8) -> Vec<u8> {
    let mut packet = packet(1, 2, mark);
    packet[9] = protocol;
    packet.splice(20..28, [0; 1200]);
    packet[21] = port;
    let len = packet.len() as u16;
    packet[2..4].copy_from_slice(&len.to_be_bytes());
    packet
}

#[test]
fn a_duplicated_packet_is_sealed_once_and_leaves_by_each_line() {
    let site = site(Moving::Stay, &[0, 1]);
    site.plane.set_line_mode(PEER, LineMode::Duplicate(both()));
    for number in 0..50 {
        site.outward(number);
        let mut copies = [site.peer_receives(), site.peer_receives()];
        copies.sort_unstable();
        let mut ports = [site.port(0), site.port(1)];
        ports.sort_unstable();
        let expected = ports.map(|port| (port, 9, number.into(), number));
        assert_eq!(copies, expected);
    }
    assert_eq!(site.plane.key_usage(PEER, 24).sealed, 50);
    site.until("both lines are counted", |site| {
        counts(site).iter().all(|line| line.sent == 50)
    });
    // Control messages, which carry no traffic, use both lines as well.
    assert!(DataPlane::send_keepalive(&site.plane, PEER));
    assert!(site.plane.send_to_peer(PEER, None, b"ab"));
    let mut ports = [0; 4].map(|_| site.peer_receives().0);
    ports.sort_unstable();
    let mut expected = [site.port(0), site.port(0), site.port(1), site.port(1)];
    expected.sort_unstable();
    assert_eq!(ports, expected);

    site.plane.set_line_mode(PEER, LineMode::Single);
    site.outward(99);
    assert_eq!(site.peer_receives(), (site.port(0), 9, 51, 99));
}

#[test]
fn a_duplicated_packet_leaves_by_the_line_that_is_left() {
    let site = site(Moving::Stay, &[0, 1]);
    site.plane.set_line_mode(PEER, LineMode::Duplicate(both()));
    site.plane.close_line(LineId(0));
    site.outward(1);
    assert_eq!(site.peer_receives(), (site.port(1), 9, 0, 1));
    site.plane.remove_line(PEER, LineId(0));
    site.outward(2);
    assert_eq!(site.peer_receives(), (site.port(1), 9, 1, 2));
    // The mode names only a line that is gone, so the line in use takes every packet.
    site.plane.use_line(PEER, LineId(1));
    let gone = LineMode::Duplicate(LineSet::of(LineId(5)));
    site.plane.set_line_mode(PEER, gone);
    site.outward(3);
    assert_eq!(site.peer_receives(), (site.port(1), 9, 2, 3));
}

#[test]
fn critical_packets_take_all_lines_and_others_the_one_in_use() {
    let site = site(Moving::Stay, &[0, 1]);
    site.plane.set_line_mode(PEER, LineMode::Critical(both()));
    site.plane.use_line(PEER, LineId(1));
    let mut marked = inner(6, 1, 2);
    marked[1] = 46 << 2;
    site.host_sends(&inner(6, 1, 1));
    site.host_sends(&marked);
    site.host_sends(&inner(6, 1, 3));
    let mut got: Vec<_> = (0..4).map(|_| site.peer_receives()).collect();
    got.sort_unstable_by_key(|(port, _, number, _)| (*number, *port == site.port(0)));
    let (a, b) = (site.port(0), site.port(1));
    assert_eq!(
        got,
        [(b, 9, 0, 1), (b, 9, 1, 2), (a, 9, 1, 2), (b, 9, 2, 3)]
    );
}

#[test]
fn each_flow_stays_on_one_line_and_all_lines_are_used() {
    let site = site(Moving::Stay, &[0, 1]);
    let mut shares = [0; LINES_MAX];
    shares[..2].copy_from_slice(&[2, 1]);
    site.plane.set_line_mode(PEER, LineMode::Balance(shares));
    let mut of_flow = [None; 200];
    for _ in 0..3 {
        for (flow, line) in of_flow.iter_mut().enumerate() {
            site.host_sends(&inner(17, flow as u8, flow as u8));
            let (port, _, _, mark) = site.peer_receives();
            assert_eq!(usize::from(mark), flow);
            assert_eq!(*line.get_or_insert(port), port, "flow {flow}");
        }
    }
    let on = |line| {
        of_flow
            .iter()
            .filter(|it| **it == Some(site.port(line)))
            .count()
    };
    assert!(on(0) > on(1) && on(1) > 5, "{} and {}", on(0), on(1));
    // A line with share 0 gets no packets.
    shares[1] = 0;
    site.plane.set_line_mode(PEER, LineMode::Balance(shares));
    for flow in 0..60 {
        site.host_sends(&inner(17, flow, flow));
        assert_eq!(site.peer_receives().0, site.port(0));
    }
}

#[test]
fn one_flow_fills_all_lines_by_bytes_and_what_is_small_stays_on_one() {
    let site = site(Moving::Stay, &[0, 1]);
    let mut shares = [0; LINES_MAX];
    shares[..2].copy_from_slice(&[2, 1]);
    site.plane
        .set_line_mode(PEER, LineMode::BalancePackets(shares));
    site.plane.use_line(PEER, LineId(1));
    let send = |packet: &[u8]| {
        site.host_sends(packet);
        site.peer_receives().0
    };
    let large = inner(6, 1, 1);
    let ports: Vec<_> = (0..60).map(|_| send(&large)).collect();
    let on_first = ports.iter().filter(|port| **port == site.port(0)).count();
    assert_eq!(on_first, 40);
    let mut small = packet(1, 2, 1);
    small[9] = 17;
    assert!((0..9).all(|_| send(&small) == site.port(1)));
    // A line with share 0 gets no packets, and does not catch up when its share is restored.
    for (share, least) in [(0, 60), (1, 40)] {
        shares[1] = share;
        site.plane
            .set_line_mode(PEER, LineMode::BalancePackets(shares));
        let ports: Vec<_> = (0..60).map(|_| send(&large)).collect();
        let on_first = ports.iter().filter(|port| **port == site.port(0)).count();
        assert_eq!(on_first, least);
    }
}

#[test]
fn a_client_at_two_addresses_gets_packets_at_both_in_turn() {
    let site = site(Moving::Gather, &[0]);
    let mut shares = [0; LINES_MAX];
    shares[0] = 1;
    site.plane
        .set_line_mode(PEER, LineMode::BalancePackets(shares));
    let other = socket();
    site.peer_sends(0, 24, 0, 1);
    assert_eq!(site.written(), 1);
    site.sends_from(&other, 0, 24, (1, &packet(2, 1, 2)));
    assert_eq!(site.written(), 2);
    let large = inner(6, 1, 1);
    for _ in 0..20 {
        site.host_sends(&large);
    }
    for socket in [&site.peer, &other] {
        for _ in 0..10 {
            receive(socket);
        }
    }
}

#[test]
fn copies_are_counted_as_duplicates_of_the_line_that_they_came_by() {
    let site = site(Moving::Stay, &[0, 1]);
    for number in 0..100 {
        let fast = u8::from(number % 4 == 0);
        site.peer_sends(fast, 24, number, 7);
        assert_eq!(site.written(), 7);
        if number % 2 == 0 {
            site.peer_sends(1 - fast, 24, number, 7);
        }
        site.until("the copy is taken", |site| {
            site.drops("duplicate") == u64::from(number / 2 + 1)
        });
    }
    let got = counts(&site);
    assert_eq!((got[0].accepted, got[0].duplicated), (75, 25));
    assert_eq!((got[1].accepted, got[1].duplicated), (25, 25));
    assert_eq!(site.drops("replayed"), 0);
}

#[test]
fn a_client_that_is_heard_at_two_addresses_is_answered_at_both() {
    let site = site(Moving::Gather, &[0]);
    let mode = LineMode::Duplicate(LineSet::of(LineId::FIRST));
    site.plane.set_line_mode(PEER, mode);
    let other = socket();
    site.peer_sends(0, 24, 0, 1);
    assert_eq!(site.written(), 1);
    // A copy can come from any address, so it adds no line.
    site.sends_from(&other, 0, 24, (0, &packet(2, 1, 1)));
    site.until("the copy is taken", |site| site.drops("duplicate") == 1);
    assert_eq!(site.plane.peer_lines(PEER).lines.len(), 1);
    // The first line loses a packet, which the second line delivers.
    site.sends_from(&other, 0, 24, (1, &packet(2, 1, 2)));
    assert_eq!(site.written(), 2);
    site.peer_sends(0, 24, 2, 3);
    assert_eq!(site.written(), 3);
    site.outward(4);
    assert_eq!(site.peer_receives(), (site.port(0), 9, 0, 4));
    assert_eq!(receive(&other), (site.port(0), 9, 0, 4));
    let used = site.plane.peer(PEER).unwrap().line.unwrap();
    assert_eq!(used.endpoint.addr, site.peer.local_addr().unwrap());
    let moved = |(_, notice): &(_, _)| matches!(notice, Notice::Moved { .. });
    assert!(!site.notices.0.lock().unwrap().iter().any(moved));
}

#[test]
fn one_line_at_a_time_is_sent_on_where_a_peer_follows_as_before() {
    let site = site(Moving::Tell, &[0]);
    let other = socket();
    site.peer_sends(0, 24, 0, 1);
    assert_eq!(site.written(), 1);
    site.sends_from(&other, 0, 24, (1, &packet(2, 1, 2)));
    assert_eq!(site.written(), 2);
    site.outward(3);
    assert_eq!(receive(&other), (site.port(0), 9, 0, 3));
    assert_eq!(site.plane.peer_lines(PEER).lines.len(), 1);
}

/// Returns the most packets with a greater number that were written ahead of any packet.
fn displacement(marks: &[u8]) -> usize {
    let ahead = |at: usize| marks[..at].iter().filter(|mark| **mark > marks[at]).count();
    (0..marks.len()).map(ahead).max().unwrap_or(0)
}

/// Sends 241 packets over two lines, one of which lags. Returns the written marks, and whether a packet arrived after
/// the reorder timeout, as happens on a stalled machine.
fn two_lines(workers: usize) -> (Vec<u8>, bool) {
    let site = Site::with_workers(workers);
    assert!(site.plane.add_peer(PEER, Moving::Stay));
    site.plane.set_line(PEER, site.line(0));
    site.plane.set_line(PEER, site.line(1));
    site.plane.set_reorder(PEER, Some(Reorder::default()));
    site.keys(24, 9, false);
    site.plane.change_routes(&[route()]);
    site.peer_sends(0, 24, 0, 0);
    let mut marks = vec![site.written()];
    for block in 0..20_u16 {
        let numbers = 1 + block * 12..13 + block * 12;
        for (line, rest) in [(0, 0), (1, 1)] {
            for number in numbers.clone().filter(|number| number % 2 == rest) {
                site.peer_sends(line, 24, number, number as u8);
            }
        }
    }
    marks.extend((1..=240).map(|_| site.written()));
    let mut late = false;
    site.until("all are counted", |site| {
        let state = site.plane.peer_lines(PEER);
        late = state.order.late > 0;
        let first: u64 = state.lines.iter().map(|line| line.counts.first()).sum();
        let all = state.order.accepted + state.order.late;
        (first, all, state.order.waiting) == (241, 241, 0)
    });
    (marks, late)
}

#[test]
fn packets_of_two_lines_are_written_in_order_whichever_worker_opened_them() {
    for workers in [1, 2, 4] {
        let mut runs = (0..50).map(|_| two_lines(workers));
        let in_time = |(marks, late): &(Vec<u8>, bool)| {
            let mut sorted = marks.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..=240).collect::<Vec<_>>());
            !late
        };
        let (marks, _) = runs.find(in_time).unwrap();
        // Two packets of a flow may overtake a gap, so that the reorder queue skips short gaps quickly.
        assert!(displacement(&marks) <= 2, "{workers} workers: {marks:?}");
    }
}

#[test]
fn what_waits_in_vain_is_written_though_nothing_more_comes() {
    for workers in [1, 2, 4] {
        let site = Site::with_workers(workers);
        assert!(site.plane.add_peer(PEER, Moving::Stay));
        site.plane.set_line(PEER, site.line(0));
        site.plane.set_reorder(PEER, Some(Reorder::default()));
        site.keys(24, 9, false);
        site.plane.change_routes(&[route()]);
        for (number, mark) in [(0, 0), (2, 2), (3, 3), (4, 4), (5, 5)] {
            site.peer_sends(0, 24, number, mark);
        }
        let marks: Vec<_> = (0..5).map(|_| site.written()).collect();
        assert_eq!(marks, [0, 2, 3, 4, 5]);
        site.until("the gap is given up", |site| {
            site.plane.peer_lines(PEER).order.lost() == 1
        });
    }
}

#[test]
fn a_tunnel_with_one_line_is_the_same_in_every_mode() {
    let one = LineSet::of(LineId::FIRST);
    let mut shares = [0; LINES_MAX];
    shares[0] = 1;
    let modes = [
        LineMode::Single,
        LineMode::Duplicate(one),
        LineMode::Critical(one),
        LineMode::Balance(shares),
        LineMode::BalancePackets(shares),
    ];
    let runs = modes.map(|mode| {
        let site = site(Moving::Tell, &[0]);
        site.plane.set_line_mode(PEER, mode);
        let reorder = (mode != LineMode::Single).then(Reorder::default);
        site.plane.set_reorder(PEER, reorder);
        let mut seen = Vec::new();
        for number in 0..60_u8 {
            site.host_sends(&inner([6, 17, 99][usize::from(number) % 3], number, number));
            let mut datagram = [0; 2000];
            let (len, _) = site.peer.recv_from(&mut datagram).unwrap();
            seen.push(datagram[..len].to_vec());
            site.peer_sends(0, 24, number.into(), number);
            let mut packet = [0; 2000];
            let len = site.host.recv(&mut packet).unwrap();
            seen.push(packet[..len].to_vec());
        }
        site.until("all are counted", |site| {
            site.plane.statistics().outbound.packets == 60
        });
        let drops = site.plane.statistics().drops;
        assert!(drops.iter().all(|(_, count)| *count == 0));
        seen
    });
    assert!(runs.iter().all(|run| *run == runs[0]));
}

#[test]
fn what_a_line_has_carried_is_counted_with_headers_and_copies_whosever_it_is() {
    let site = site(Moving::Stay, &[0, 1]);
    site.plane.set_line_mode(PEER, LineMode::Duplicate(both()));
    // Sends a data packet, a control message, and a datagram without a session or peer.
    site.outward(1);
    let mut bytes = [0; 2];
    for _ in 0..2 {
        let mut datagram = [0; 2000];
        let (len, from) = site.peer.recv_from(&mut datagram).unwrap();
        bytes[usize::from(from.port() == site.port(1))] += len as u64 + 28;
    }
    site.until("both lines are counted", |site| {
        site.plane.carried()[..2] == bytes
    });
    assert!(DataPlane::send(&site.plane, &site.line(1), b"abcd"));
    let stranger = socket();
    stranger
        .send_to(&[0; 100], ("127.0.0.1", site.port(0)))
        .unwrap();
    site.until("it is counted", |site| {
        site.plane.carried()[..3] == [bytes[0] + 128, bytes[1] + 32, 0]
    });
}

#[test]
fn packets_wait_for_their_turn_in_front_of_a_slow_line_and_none_is_lost() {
    let site = site(Moving::Stay, &[0]);
    // ECN-capable packets: the queue marks a packet that waits too long instead of dropping it.
    let capable = |protocol, port, mark| {
        let mut packet = inner(protocol, port, mark);
        packet[1] = 2;
        packet
    };
    // At this rate nothing follows the first packet for ten seconds.
    site.plane.set_rate(Some(1_000));
    for _ in 0..30 {
        site.host_sends(&capable(6, 1, 1));
    }
    site.host_sends(&capable(17, 2, 2));
    // The data plane has read all these packets before the next one leaves.
    site.plane.set_rate(Some(10_000_000));
    let marks: Vec<u8> = (0..31).map(|_| site.peer_receives().3).collect();
    assert_eq!(marks.iter().filter(|mark| **mark == 1).count(), 30);
    let turn = marks.iter().position(|mark| *mark == 2).unwrap();
    assert!(turn < 3, "the other flow was number {turn}");

    // Queued packets leave at once when the rate limit is raised.
    site.plane.set_rate(Some(1_000));
    for _ in 0..30 {
        site.host_sends(&capable(6, 1, 3));
    }
    site.plane.set_rate(None);
    site.outward(4);
    let mut last: Vec<u8> = (0..31).map(|_| site.peer_receives().3).collect();
    last.sort_unstable();
    assert_eq!((last[0], last[29], last[30]), (3, 3, 4));
    assert_eq!(site.drops("queue"), 0);
}

#[test]
fn a_flow_waits_for_its_own_line_only() {
    let site = site(Moving::Stay, &[0, 1]);
    let mut shares = [0; LINES_MAX];
    shares[..2].copy_from_slice(&[1, 1]);
    site.plane.set_line_mode(PEER, LineMode::Balance(shares));
    let port_of = |flow| {
        site.host_sends(&inner(17, flow, flow));
        site.peer_receives().0
    };
    let on: Vec<u16> = (0..100).map(port_of).collect();
    let flow_of = |line| on.iter().position(|port| *port == site.port(line)).unwrap() as u8;
    let (slow, fast) = (flow_of(0), flow_of(1));
    // At this rate nothing follows the first packet on the slow line for ten seconds.
    let mut rates = [0; LINES_MAX];
    rates[..2].copy_from_slice(&[1_000, 1_000_000_000]);
    site.plane.set_line_rates(rates);
    let capable = |flow, mark| {
        let mut packet = inner(17, flow, mark);
        packet[1] = 2;
        packet
    };
    for _ in 0..30 {
        site.host_sends(&capable(slow, 1));
    }
    for _ in 0..30 {
        site.host_sends(&capable(fast, 2));
    }
    let all: Vec<_> = (0..31).map(|_| site.peer_receives()).collect();
    let by = |line, mark| {
        let same = all
            .iter()
            .filter(|it| it.0 == site.port(line) && it.3 == mark);
        same.count()
    };
    assert_eq!((by(0, 1), by(1, 2)), (1, 30), "{all:?}");
    // The slow line is lost: packets that waited for it leave over the other line.
    shares[0] = 0;
    rates[0] = 0;
    site.plane.set_line_mode(PEER, LineMode::Balance(shares));
    site.plane.set_line_rates(rates);
    for _ in 0..29 {
        let (port, _, _, mark) = site.peer_receives();
        assert_eq!((port, mark), (site.port(1), 1));
    }
    assert_eq!(site.drops("queue"), 0);
}

#[test]
fn packets_of_one_flow_leave_by_each_line_as_it_has_room() {
    let site = site(Moving::Stay, &[0, 1]);
    let mut shares = [0; LINES_MAX];
    shares[..2].copy_from_slice(&[1, 1]);
    site.plane
        .set_line_mode(PEER, LineMode::BalancePackets(shares));
    let mut rates = [0; LINES_MAX];
    rates[..2].copy_from_slice(&[1_000, 1_000_000_000]);
    site.plane.set_line_rates(rates);
    for mark in 0..40 {
        let mut packet = inner(17, 1, mark);
        packet[1] = 2;
        site.host_sends(&packet);
    }
    // Each line takes one packet; then the line that is soon idle again takes all others, whatever the shares are.
    let ports: Vec<u16> = (0..40).map(|_| site.peer_receives().0).collect();
    let slow = ports.iter().filter(|port| **port == site.port(0)).count();
    assert_eq!(slow, 1, "{ports:?}");
}
