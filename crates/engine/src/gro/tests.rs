//! Tests of joining against cutting: cutting a joined packet must return the original packets.

use super::*;
use crate::gso::Super;
use crate::ip::tests::{ipv4, ipv6};
use proptest::prelude::*;

const ALL: Joins = Joins {
    tcp: true,
    udp: true,
    most: JOIN_MAX,
};

#[derive(Clone, Debug)]
struct Seg {
    v6: bool,
    udp: bool,
    flow: u8,
    seq: u32,
    flags: u8,
    len: usize,
    ttl: u8,
    damage: bool,
}

fn packet(s: &Seg) -> Vec<u8> {
    let payload: Vec<u8> = (0..s.len).map(|i| (i as u32 ^ s.seq) as u8).collect();
    let mut l4 = vec![0, s.flow, 0, 80];
    let at = if s.udp {
        l4.extend_from_slice(&((8 + s.len) as u16).to_be_bytes());
        l4.extend_from_slice(&[0, 0]);
        6
    } else {
        l4.extend_from_slice(&s.seq.to_be_bytes());
        l4.extend_from_slice(&[0, 0, 0, 1, 0x50, s.flags, 1, 0, 0, 0, 0, 0]);
        16
    };
    l4.extend_from_slice(&payload);
    let protocol = if s.udp { UDP } else { TCP };
    let mut p = if s.v6 {
        ipv6([1; 16], [s.flow; 16], protocol, &l4)
    } else {
        ipv4([10, 0, 0, 1], [10, 0, 0, s.flow], protocol, &l4)
    };
    let (ip, addresses) = if s.v6 { (40, 8..40) } else { (20, 12..20) };
    if s.v6 {
        p[7] = s.ttl;
    } else {
        p[8] = s.ttl;
        p[4..6].fill(0);
        checksum::write_ipv4(&mut p[..20]);
    }
    let pseudo = checksum::pseudo_header(&p[addresses], protocol, l4.len());
    let sum = !checksum::fold(checksum::add(pseudo, &p[ip..]));
    p[ip + at..ip + at + 2].copy_from_slice(&sum.to_ne_bytes());
    if s.damage {
        *p.last_mut().unwrap() ^= 1;
    }
    p
}

/// Runs packets through the coalescer; returns each write as (header, gathered bytes). `slack` bytes precede each
/// packet; the last has none after it.
fn run_with(
    slack: impl Fn(usize) -> usize,
    packets: &[Vec<u8>],
    joins: Joins,
    refuse: bool,
) -> Vec<(VnetHdr, Vec<u8>)> {
    let mut memory = Vec::new();
    let mut places = Vec::new();
    for (i, p) in packets.iter().enumerate() {
        memory.resize(memory.len() + slack(i), 0xaa);
        places.push((memory.len() as u32, p.len() as u32));
        memory.extend_from_slice(p);
    }
    let mut c = Coalescer::with_capacity(64);
    for (start, len) in places {
        let shape = inspect(&memory[start as usize..(start + len) as usize]);
        c.push(&memory, start, len, shape, joins);
    }
    let mut out = Vec::new();
    c.drain(&mut memory, |memory, hdr, gather| {
        if refuse && hdr.gso != GsoKind::None {
            return Written::Refused;
        }
        let bytes: Vec<u8> = gather.ranges().flat_map(|r| memory[r].to_vec()).collect();
        out.push((*hdr, bytes));
        Written::Done
    });
    out
}

fn run(packets: &[Vec<u8>], joins: Joins, refuse: bool) -> Vec<(VnetHdr, Vec<u8>)> {
    run_with(|_| 16, packets, joins, refuse)
}

fn data(seq: u32, len: usize) -> Seg {
    Seg {
        v6: false,
        udp: false,
        flow: 1,
        seq,
        flags: 0x10,
        len,
        ttl: 64,
        damage: false,
    }
}

#[test]
fn a_run_of_tcp_becomes_one_write_that_ends_with_the_short_packet() {
    let segs: Vec<_> = [data(0, 100), data(100, 100), data(200, 60), data(260, 100)]
        .iter()
        .map(packet)
        .collect();
    let out = run(&segs, ALL, false);
    assert_eq!(out.len(), 2);
    assert_eq!(out[0].0.gso, GsoKind::Tcp4);
    assert_eq!(out[0].0.gso_size, 100);
    assert_eq!(out[0].1.len(), 40 + 260);
    assert_eq!(out[1].1, segs[3]);
}

#[test]
fn psh_ends_a_run_and_is_kept() {
    let pushed = Seg {
        flags: 0x18,
        ..data(100, 100)
    };
    let segs = [
        packet(&data(0, 100)),
        packet(&pushed),
        packet(&data(200, 100)),
    ];
    let out = run(&segs, ALL, false);
    assert_eq!(out.len(), 2);
    assert_eq!(out[0].1[20 + 13], 0x18);
}

#[test]
fn interleaved_flows_are_each_joined_and_a_barrier_keeps_their_order() {
    let other = |seq, len| Seg {
        flow: 2,
        ..data(seq, len)
    };
    let fin = Seg {
        flags: 0x11,
        ..data(200, 10)
    };
    let segs: Vec<_> = [
        data(0, 100),
        other(0, 50),
        data(100, 100),
        other(50, 50),
        fin,
        data(210, 100),
    ]
    .iter()
    .map(packet)
    .collect();
    let out = run(&segs, ALL, false);
    assert_eq!(
        out.iter().map(|o| o.1.len()).collect::<Vec<_>>(),
        [240, 140, 50, 140]
    );
}

#[test]
fn a_damaged_packet_is_passed_on_as_it_is() {
    let bad = Seg {
        damage: true,
        ..data(100, 100)
    };
    let segs = [packet(&data(0, 100)), packet(&bad), packet(&data(200, 100))];
    let out = run(&segs, ALL, false);
    assert_eq!(out.len(), 3);
    assert_eq!(out[1].1, segs[1]);
}

#[test]
fn what_is_not_allowed_is_not_joined() {
    let segs = [packet(&data(0, 100)), packet(&data(100, 100))];
    assert_eq!(run(&segs, Joins { tcp: false, ..ALL }, false).len(), 2);
    let udp = [0, 1].map(|_| {
        packet(&Seg {
            udp: true,
            ..data(0, 100)
        })
    });
    assert_eq!(run(&udp, Joins { udp: false, ..ALL }, false).len(), 2);
    // Without DF the identification must count up, and here it stands still; the IPv4 test
    // packets have DF set, so they join.
    assert_eq!(run(&udp, ALL, false).len(), 1);
    assert_eq!(run(&segs, Joins { most: 1, ..ALL }, false).len(), 2);
}

#[test]
fn datagrams_shorter_than_a_tcp_header_are_joined_at_the_very_end_of_the_memory() {
    for v6 in [false, true] {
        for len in 1..12 {
            let tiny = Seg {
                v6,
                udp: true,
                ..data(0, len)
            };
            let packets = vec![packet(&tiny); 3];
            let out = run_with(|_| 0, &packets, ALL, false);
            assert_eq!(out.len(), 1, "{len} bytes, v6: {v6}");
            assert_eq!(by_flow(&cut(&out[0].0, &out[0].1)), by_flow(&packets));
        }
    }
}

/// Packets of a few flows. Most lengths come from a small set, because only equal ones are joined.
fn segs() -> impl Strategy<Value = Vec<Seg>> {
    let length = || prop_oneof![3 => 1_usize..24, 1 => 24_usize..1400];
    let seg = (any::<bool>(), 1_u8..4, 0_u8..20, 0_usize..16, 0_u8..12);
    let lengths = (length(), length(), length());
    let raw = proptest::collection::vec((seg, length()), 1..40);
    (any::<bool>(), lengths, raw).prop_map(|(v6, (a, b, c), raw)| {
        let mut next = [0_u32; 4];
        raw.into_iter()
            .map(|((udp, flow, odd, size, damage), other)| {
                let len = match size {
                    0..12 => a,
                    12 => b,
                    13 => c,
                    _ => other,
                };
                let seq = next[usize::from(flow)];
                next[usize::from(flow)] = seq.wrapping_add(len as u32 + u32::from(odd == 0));
                let flags = match odd {
                    1 => 0x18,
                    2 => 0x11,
                    3 => 0x02,
                    _ => 0x10,
                };
                let ttl = if odd == 4 { 63 } else { 64 };
                Seg {
                    v6,
                    udp,
                    flow: flow + 4 * u8::from(udp),
                    seq,
                    flags,
                    len,
                    ttl,
                    damage: damage == 0,
                }
            })
            .collect()
    })
}

/// Cuts a write into the packets of which it consists.
fn cut(hdr: &VnetHdr, bytes: &[u8]) -> Vec<Vec<u8>> {
    if hdr.gso == GsoKind::None {
        return vec![bytes.to_vec()];
    }
    let s = Super::parse(bytes, hdr).unwrap();
    let mut memory = bytes.to_vec();
    memory.resize(s.count() * s.len(0), 0);
    s.spread(&mut memory, 0, 0, s.len(0));
    (0..s.count())
        .map(|i| memory[i * s.len(0)..i * s.len(0) + s.len(i)].to_vec())
        .collect()
}

/// Packets are compared by flow, with the identification (which cutting counts up) cleared.
fn by_flow(packets: &[Vec<u8>]) -> Vec<Vec<Vec<u8>>> {
    let mut flows: Vec<Vec<Vec<u8>>> = vec![Vec::new(); 16];
    for p in packets {
        let mut p = p.clone();
        let ip = if p[0] >> 4 == 6 { 40 } else { 20 };
        if ip == 20 {
            p[4..6].fill(0);
            p[10..12].fill(0);
        }
        flows[usize::from(p[ip + 1] & 15)].push(p);
    }
    flows
}

proptest! {
    #[test]
    fn every_packet_comes_out_once_and_in_the_order_of_its_flow(
        segs in segs(),
        slack in proptest::collection::vec(0_usize..70, 1..8),
        refuse in any::<bool>(),
    ) {
        let packets: Vec<_> = segs.iter().map(packet).collect();
        let out = run_with(|i| slack[i % slack.len()], &packets, ALL, refuse);
        let cut: Vec<_> = out.iter().flat_map(|(h, b)| cut(h, b)).collect();
        prop_assert_eq!(by_flow(&cut), by_flow(&packets));
    }

    #[test]
    fn arbitrary_bytes_pass_unharmed(
        packets in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..120), 0..20),
        slack in 0_usize..20,
    ) {
        let out = run_with(|_| slack, &packets, ALL, false);
        let bytes: Vec<_> = out.into_iter().map(|o| o.1).collect();
        prop_assert_eq!(bytes, packets);
    }
}
