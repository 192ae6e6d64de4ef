//! A UCI file of any origin, and a tunnel in it.
#![no_main]

use openwrt::network::{Network, device_of};
use openwrt::only_through::Lists;
use openwrt::uci::{FAULTS_MAX, Package};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    if let Ok(all) = Lists::read(&text) {
        assert!(all.lists.iter().all(|it| !it.lan.is_empty()));
    }
    match Package::parse(&text) {
        Ok(package) => {
            let _ = package.section("@interface[-1]");
            let _ = device_of(&package, "office");
            if let Ok(network) = Network::read(&package, "office") {
                let _ = network.lines_by(|name| Some(name.to_owned()));
            }
        }
        Err(faults) => assert!(!faults.is_empty() && faults.len() <= FAULTS_MAX),
    }
});
