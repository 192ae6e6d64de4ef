//! Packets out of a tunnel, as the peer chose them, on their way to be joined.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| engine::fuzzing::gro(data));
