//! Unpacks a peer's compressed bytes: LZO1X and LZ4, in each framing.
//!
//! The first byte chooses the framing, the next two the size of the output buffer.
#![no_main]

use openvpn::data::format::{Framing, Unframed};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let [how, low, high, framed @ ..] = data else {
        return;
    };
    let framing = [Framing::Lzo, Framing::Swap, Framing::V2, Framing::None][usize::from(how % 4)];
    let room = usize::from(u16::from_le_bytes([*low, *high]));
    let unpack = |room: usize| {
        let mut memory = vec![0xee; room + 16];
        let len = framing.unpack(&mut framed.to_vec(), &mut memory[..room])?;
        assert!(memory[room..].iter().all(|&byte| byte == 0xee));
        memory.truncate(len);
        Some(memory)
    };
    let is_marked = matches!(
        framing.unframe(&mut framed.to_vec(), 0..framed.len()),
        Unframed::Compressed(_)
    );
    let Some(whole) = unpack(room) else {
        return;
    };
    assert!(is_marked && whole.len() <= room);
    // The buffer's size does not change the output; it must only suffice.
    assert_eq!(unpack(whole.len()).as_ref(), Some(&whole));
    if !whole.is_empty() {
        assert_eq!(unpack(whole.len() - 1), None);
    }
});
