//! A firmware image of any make. The walk stays within its limits and ends soon.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| audit::unpack::fuzzing::image(bytes));
