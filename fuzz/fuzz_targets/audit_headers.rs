//! Vendors' headers and trailers: TRX, CHK, DNI, uImage, OpenWrt's metadata.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| audit::unpack::fuzzing::headers(bytes));
