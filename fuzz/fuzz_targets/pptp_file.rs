//! A PPTP file: a rejected file gives no model.
#![no_main]

use std::path::Path;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let import = config::pptp::parse(text, Path::new("office.toml"), Default::default());
    assert!(!import.is_usable() || import.report.is_clean());
    assert!(import.is_usable() == import.into_model().is_ok());
});
