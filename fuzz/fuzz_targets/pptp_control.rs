//! The stream of a control connection, as client and server read it.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pptp::fuzz::control(bytes));
