//! Reads the answer of an HTTP or SOCKS proxy.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| openvpn_host::fuzz::proxy(bytes));
