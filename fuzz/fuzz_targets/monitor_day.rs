//! The file with the rates of a day, which a crash or another program may have damaged.

#![no_main]

use libfuzzer_sys::fuzz_target;
use monitor::day::{Day, TEXT_MAX};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let mut day = Day::from_text(text);
    let kept = day.to_text();
    assert!(kept.len() <= TEXT_MAX);
    assert_eq!(Day::from_text(&kept).to_text(), kept);
    day.tick(1_800_000_000);
});
