//! A firmware image of any make. Nothing is handed over beyond the limits, and nothing takes long.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| audit::unpack::fuzzing::image(bytes));
