//! Functions by which a fuzzer calls the code that untrusted bytes reach first.

use crate::gro::{Coalescer, JOIN_MAX, Joins, Written, inspect};
use crate::gso::{Super, complete_checksum};
use netio::tun::{VNET_HDR_LEN, VnetHdr};

mod plane;

pub use plane::{Plane, connection};

/// Coalesces packets and checks that every byte comes out once. Before each packet stand 16 bits, big-endian: 11 bits
/// of its length and 5 of its slack. The memory ends with the last packet.
///
/// # Panics
/// If packets were lost or made up: a finding.
pub fn gro(data: &[u8]) {
    let mut memory = Vec::new();
    let mut places = Vec::new();
    let mut rest = data;
    while let Some((lengths, tail)) = rest.split_first_chunk() {
        let lengths = usize::from(u16::from_be_bytes(*lengths));
        let (packet, tail) = tail.split_at((lengths >> 5).min(tail.len()));
        let len = packet.len();
        memory.resize(memory.len() + (lengths & 31), 0);
        places.push((memory.len() as u32, len as u32));
        memory.extend_from_slice(packet);
        rest = tail;
    }
    let mut coalescer = Coalescer::with_capacity(places.len());
    let joins = Joins {
        tcp: true,
        udp: true,
        most: JOIN_MAX,
    };
    for &(start, len) in &places {
        let shape = inspect(&memory[start as usize..(start + len) as usize]);
        coalescer.push(&memory, start, len, shape, joins);
    }
    let mut count = 0;
    coalescer.drain(&mut memory, |memory, hdr, gather| {
        count += gather.count as usize;
        let bytes: usize = gather.ranges().map(|r| memory[r].len()).sum();
        assert!(bytes <= 65_535 + 2048, "a write of {bytes} bytes");
        assert_eq!(gather.ranges().count(), gather.count as usize);
        assert_eq!(VnetHdr::parse(&hdr.emit()), Some(*hdr));
        Written::Done
    });
    assert_eq!(count, places.len(), "packets in and out");
}

/// Cuts a packet behind a `virtio_net_hdr`, as a TUN would hand it over.
///
/// # Panics
/// If a segment would lie outside the memory: a finding.
pub fn gso(data: &[u8]) {
    let Some(hdr) = VnetHdr::parse(data) else {
        return;
    };
    let mut packet = data[VNET_HDR_LEN..].to_vec();
    complete_checksum(&mut packet, &hdr);
    let Some(parsed) = Super::parse(&packet, &hdr) else {
        return;
    };
    let payload: usize = (0..parsed.count()).map(|i| parsed.len(i)).sum();
    assert!(payload >= packet.len());
    let (mut headers, mut cut) = (Vec::new(), Vec::new());
    let mut whole = packet.clone();
    parsed.cut(&mut whole, &mut headers, |one| cut.push(one.len()));
    assert!(
        cut.iter()
            .copied()
            .eq((0..parsed.count()).map(|i| parsed.len(i)))
    );
    let stride = parsed.len(0) + 48;
    if parsed.count() * stride <= 1 << 20 {
        packet.resize(parsed.count() * stride, 0);
        parsed.spread(&mut packet, 0, 0, stride);
    }
}
