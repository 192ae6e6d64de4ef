use proptest::prelude::*;

use super::*;

fn packet(len: usize, salt: u8) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ salt).collect()
}

fn pieces(fragmenter: &mut Fragmenter, packet: &[u8]) -> Vec<Vec<u8>> {
    let cut = fragmenter.cut(packet.len()).unwrap();
    cut.map(|piece| [&piece.header[..], &packet[piece.range]].concat())
        .collect()
}

#[test]
fn sizes_of_stock() {
    // 1500 does not fit twice: one piece more, all of about the same size.
    assert_eq!(piece_len(1500, 1272), 752);
    assert_eq!(piece_len(2544, 1272), 1272);
    assert_eq!(piece_len(2500, 1272), 1272);
    assert_eq!(piece_len(1275, 1273), 640);
    let sizes = |len, most| -> Vec<_> {
        Fragmenter::new(most, 0)
            .cut(len)
            .unwrap()
            .map(|piece| piece.range.len())
            .collect()
    };
    assert_eq!(sizes(1272, 1272), [1272]);
    assert_eq!(sizes(1500, 1272), [752, 748]);
    assert_eq!(sizes(2544, 1272), [1272, 1272]);
}

/// Stock 2.6.14 logged these values for packets of many sizes.
#[test]
fn pieces_of_stock() {
    let mut rows = 0;
    for row in include_str!("../../../tests/data/fragments.txt").lines() {
        if row.starts_with('#') {
            continue;
        }
        let mut words = row.split(' ');
        let len = words.next().unwrap().parse().unwrap();
        let pieces: Vec<_> = words
            .map(|word| {
                let (head, len) = word.split_once(':').unwrap();
                let head = u32::from_str_radix(head, 16).unwrap();
                (head.to_be_bytes(), len.parse::<usize>().unwrap())
            })
            .collect();
        let number = (u32::from_be_bytes(pieces[0].0) >> 2) as u8;
        let cut: Vec<_> = Fragmenter::new(339, number.wrapping_sub(1))
            .cut(len)
            .unwrap()
            .map(|piece| (piece.header, piece.range.len()))
            .collect();
        assert_eq!(cut, pieces, "{len} bytes");
        rows += 1;
    }
    assert!(rows > 30);
}

#[test]
fn heads() {
    let mut fragmenter = Fragmenter::new(100, 0xfe);
    assert_eq!(pieces(&mut fragmenter, &[7; 100])[0][..5], [0, 0, 0, 0, 7]);
    let cut = pieces(&mut fragmenter, &[7; 200]);
    assert_eq!(cut[0][..4], (1_u32 | 0xff << 2).to_be_bytes());
    assert_eq!(
        cut[1][..4],
        (2_u32 | 0xff << 2 | 1 << 10 | (100 / 4) << 15).to_be_bytes()
    );
    // The number wraps.
    assert_eq!(pieces(&mut fragmenter, &[7; 200])[0][..4], [0, 0, 0, 1]);
}

#[test]
fn too_long_a_packet_is_refused() {
    let mut fragmenter = Fragmenter::new(40, 0);
    assert_eq!(fragmenter.cut(40 * 32).unwrap().len(), 32);
    let Err(error) = fragmenter.cut(40 * 32 + 1) else {
        panic!("33 pieces");
    };
    assert_eq!(error.len, 1281);
    assert!(Fragmenter::new(0, 0).cut(1500).is_err());
}

#[test]
fn in_any_order_and_between_each_other() {
    let now = Instant::now();
    let mut fragmenter = Fragmenter::new(100, 250);
    let mut reassembler = Reassembler::new(1500);
    let packets: Vec<_> = (0..20).map(|n| packet(900 + n, n as u8)).collect();
    let mut wire: Vec<_> = packets
        .iter()
        .flat_map(|packet| pieces(&mut fragmenter, packet))
        .collect();
    // Odd pieces first, then even ones in reverse; numbers wrap in between.
    let mut order: Vec<_> = (0..wire.len()).filter(|n| n % 2 == 1).collect();
    order.extend((0..wire.len()).filter(|n| n % 2 == 0).rev());
    let mut done = Vec::new();
    for n in order {
        match reassembler.receive(&wire[n], now).unwrap() {
            Reassembled::Complete(packet) => done.push(packet.to_vec()),
            Reassembled::Waiting => {}
            Reassembled::Whole => panic!("no packet was whole"),
        }
    }
    done.reverse();
    assert_eq!(done, packets);
    assert_eq!(reassembler.waiting(), 0);
    wire.clear();
}

#[test]
fn a_lost_piece_costs_one_packet_and_bounded_memory() {
    let mut now = Instant::now();
    let mut fragmenter = Fragmenter::new(100, 0);
    let mut reassembler = Reassembler::new(1500);
    for n in 0..1000 {
        let wire = pieces(&mut fragmenter, &packet(250, n as u8));
        for piece in &wire[..wire.len() - 1] {
            assert_eq!(reassembler.receive(piece, now), Ok(Reassembled::Waiting));
        }
        assert!(reassembler.waiting() <= usize::from(WINDOW));
    }
    now += LIFETIME;
    assert_eq!(reassembler.expire(now), usize::from(WINDOW));
    assert_eq!(reassembler.waiting(), 0);
}

/// A number is used again with pieces of another size: the pieces of the old packet are dropped.
#[test]
fn pieces_of_different_packets_are_not_mixed() {
    let now = Instant::now();
    let mut reassembler = Reassembler::new(1500);
    let old = pieces(&mut Fragmenter::new(100, 7), &packet(200, 1));
    let new = pieces(&mut Fragmenter::new(60, 7), &packet(110, 2));
    assert_eq!(reassembler.receive(&old[0], now), Ok(Reassembled::Waiting));
    assert_eq!(reassembler.receive(&new[1], now), Ok(Reassembled::Waiting));
    assert_eq!(
        reassembler.receive(&new[0], now),
        Ok(Reassembled::Complete(&packet(110, 2)))
    );
}

#[test]
fn damaged_heads() {
    let now = Instant::now();
    let mut reassembler = Reassembler::new(1500);
    let mut receive = |head: u32, len: usize| {
        let bytes = [&head.to_be_bytes()[..], &vec![0; len]].concat();
        reassembler.receive(&bytes, now).map(|_| ())
    };
    assert_eq!(receive(0, 0), Ok(()));
    for head in [3, 4, 0xfc, 2, 1] {
        assert_eq!(receive(head, 0), Err(FragmentError::Header(head)));
    }
    assert_eq!(receive(1, 5), Err(FragmentError::Header(1)));
    // Longer than its size field says.
    assert_eq!(
        receive(2 | 1 << 15, 5),
        Err(FragmentError::Header(2 | 1 << 15))
    );
    assert_eq!(receive(1 | 31 << 10, 100), Err(FragmentError::TooLong));
    assert_eq!(
        receive(2 | 31 << 10 | 0x3fff << 15, 4),
        Err(FragmentError::TooLong)
    );
    // A last piece, then one with a higher offset.
    assert_eq!(receive(2 | 1 << 10 | 5 << 15, 20), Ok(()));
    assert!(receive(1 | 2 << 10, 20).is_err());
    assert_eq!(
        reassembler.receive(&[0; 3], now),
        Err(FragmentError::NoHeader)
    );
}

proptest! {
    #[test]
    fn what_is_cut_comes_back(len in 1..4000_usize, most in 8..1500_usize, number: u8, swap: u8) {
        let packet = packet(len, 0);
        let mut fragmenter = Fragmenter::new(most, number);
        let Ok(cut) = fragmenter.cut(len) else {
            prop_assert!(len > most * 20);
            return Ok(());
        };
        let cut: Vec<_> = cut.collect();
        prop_assert!(cut.iter().all(|piece| piece.range.len() <= most));
        prop_assert_eq!(cut.iter().map(|piece| piece.range.len()).sum::<usize>(), len);
        let mut wire: Vec<_> = cut.iter().map(|piece| [&piece.header[..], &packet[piece.range.clone()]].concat()).collect();
        let count = wire.len();
        wire.rotate_left(usize::from(swap) % count);
        let mut reassembler = Reassembler::new(4000);
        let mut complete = None;
        for piece in wire {
            match reassembler.receive(&piece, Instant::now()).unwrap() {
                Reassembled::Whole => complete = Some(piece[4..].to_vec()),
                Reassembled::Complete(bytes) => complete = Some(bytes.to_vec()),
                Reassembled::Waiting => {}
            }
        }
        prop_assert_eq!(complete, Some(packet));
    }

    #[test]
    fn anything_at_all(payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..60)) {
        let mut reassembler = Reassembler::new(500);
        for payload in payloads {
            if let Ok(Reassembled::Complete(packet)) = reassembler.receive(&payload, Instant::now()) {
                prop_assert!(packet.len() <= 500);
            }
            prop_assert!(reassembler.waiting() <= usize::from(WINDOW));
        }
    }
}
