//! Packets out of a tunnel, as the peer chose them, for the code that joins packets.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| engine::fuzzing::gro(data));
