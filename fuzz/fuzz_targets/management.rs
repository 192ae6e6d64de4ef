//! Sends the bytes as a client of OpenVPN's management port.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| service::openvpn::fuzz::management(bytes));
