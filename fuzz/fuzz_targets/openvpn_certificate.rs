//! A certificate that a peer shows, and a revocation list.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| openvpn::verify::fuzz(data));
