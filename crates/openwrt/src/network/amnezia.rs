//! AmneziaWG's settings as options, named as in the protocol `amneziawg`.

use super::options::Options;
use config::amnezia::{OPTIONS, set};
use config::tunnel::Interface;

/// Names of the options.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    OPTIONS.iter().map(|(option, _)| option.as_str())
}

/// Reads the options. A wrong value is a fault, as with a default in its place the two ends would not hear each other.
pub(super) fn read(interface: &mut Interface, options: &mut Options<'_>) {
    let settings = &mut interface.amnezia;
    for (option, key) in OPTIONS.iter() {
        let Some(value) = options.text(option) else {
            continue;
        };
        let value = match (*key, value) {
            ("RandomTrailers" | "DisableCookies", "yes" | "enabled") => "1",
            ("RandomTrailers" | "DisableCookies", "no" | "disabled") => "0",
            _ => value,
        };
        match set(settings, key, value) {
            Ok(remark) if remark.is_empty() => {}
            Ok(remark) => log::info!("{option}: {remark}"),
            Err(words) => options.refuse(option, &words),
        }
    }
    if let (true, Err(fault)) = (options.faults.is_empty(), settings.check()) {
        let words = fault.to_string();
        // The words begin with the key to change.
        let key = words.split(' ').next().unwrap_or_default();
        let option = OPTIONS.iter().find(|it| it.1 == key);
        options.refuse(option.map_or("proto", |it| it.0.as_str()), &words);
    }
}
