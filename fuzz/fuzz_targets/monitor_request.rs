//! Reads a stranger's request to the web page's server: the head, and its fields.

#![no_main]

use libfuzzer_sys::fuzz_target;
use monitor::gate::{Gate, shown};
use monitor::http::{HEAD_MAX, Head, LONG_BODY_MAX};
use monitor::peers::Wanted;
use monitor::question::AtHome;

fuzz_target!(|data: &[u8]| {
    let Ok(Some((head, length))) = Head::parse(data) else {
        return;
    };
    assert!(length <= data.len() && length <= HEAD_MAX && head.length <= LONG_BODY_MAX);
    let gate = Gate::new(&["router".to_owned()]);
    let passes = gate.check(&head).is_ok();
    // A request passes only if it names a host, and no foreign one.
    let host = head.host.clone().unwrap_or_default();
    assert!(!passes || !host.is_empty() && !host.contains("evil"));
    let _ = shown(&head);
    let _ = head.cookie("millrace-monitor");
    let _ = Wanted::new(&head);
    let _ = serde_json::from_slice::<AtHome>(&data[length..]);
});
