//! A relay's file of any origin.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let import = config::relay::parse(&text, "fuzz.conf");
    for entry in &import.report.entries {
        let _ = import.report.describe(entry);
    }
    let (usable, clean) = (import.is_usable(), import.report.is_clean());
    assert_eq!(usable, clean);
    if let Ok(relay) = import.into_model() {
        assert!(!relay.clients.is_empty() && relay.clients.len() <= config::relay::CLIENTS_MAX);
    }
});
