//! Checks the data plane with the example: packets arrive as they were and in order; copies, and packets from another
//! address in the tunnel, do not.

use super::*;

#[test]
fn packets_go_both_ways_in_order_and_as_they_were() {
    let [a, b] = pair().unwrap();
    for number in 0..200_u8 {
        let text = vec![number; usize::from(number) * 6];
        let [there, back] = [packet(A, B, &text), packet(B, A, &text)];
        a.send(&there).unwrap();
        assert_eq!(b.receive().unwrap(), there);
        b.send(&back).unwrap();
        assert_eq!(a.receive().unwrap(), back);
    }
    let burst: Vec<_> = (0..50_u8).map(|n| packet(A, B, &[n; 700])).collect();
    burst.iter().for_each(|packet| a.send(packet).unwrap());
    for sent in &burst {
        assert_eq!(b.receive().unwrap(), *sent);
    }
}

#[test]
fn what_comes_twice_or_from_another_address_in_the_tunnel_does_not_arrive() {
    let [a, b] = pair().unwrap();
    let key = Key {
        receiver: 9,
        pad: *b"no proof",
    };
    let seal = |counter, packet: &[u8]| {
        let mut memory = [&[0; HEAD], packet].concat();
        let mut packets = [Packet {
            start: HEAD as u32,
            len: packet.len() as u32,
            counter,
            authentic: false,
        }];
        key.seal(&mut Batch {
            memory: &mut memory,
            packets: &mut packets,
        });
        memory
    };
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let genuine = packet(A, B, b"once");
    let foreign = packet([10, 0, 0, 77].into(), B, b"not mine");
    let last = packet(A, B, b"last");
    for datagram in [
        seal(0, &genuine),
        seal(0, &genuine),
        seal(1, &foreign),
        seal(2, &last),
    ] {
        stranger
            .send_to(&datagram, (Ipv4Addr::LOCALHOST, b.port))
            .unwrap();
    }
    assert_eq!(b.receive().unwrap(), genuine);
    assert_eq!(b.receive().unwrap(), last);
    drop(a);
}
