//! Frames of PPP, by each layer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pptp::fuzz::ppp(bytes));
