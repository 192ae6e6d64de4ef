//! Sends the bytes as a client of OpenVPN's management port.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| openvpn_host::fuzz::management(bytes));
