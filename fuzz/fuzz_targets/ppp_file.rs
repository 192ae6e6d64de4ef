//! A file of pppd or pptpd, under a fixed name. A rejected file gives no model.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    let import = config::pptp::ppp::parse_alone(text);
    assert!(!import.is_usable() || import.report.is_clean());
    assert!(import.is_usable() == import.into_model().is_ok());
});
