//! Packets of PAP, CHAP and MS-CHAPv2.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pptp::fuzz::login(bytes));
