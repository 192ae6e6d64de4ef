//! Checks whether the devices that an interface lists (`only_through`) are guarded. The guard blocks them, with or
//! without this process; this one only reports to netifd if it does not.

use super::code;
use super::telling::{Orders, source};
use crate::guard::unknown_words;
use host::privileges;
use openwrt::network::Network;
use openwrt::only_through::{Lan, OPTION};
use openwrt::teller::Fault;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use steer::guard::State;

/// How long the guard may take: its init script learns of a change at the same time as this process, and the device may
/// be new.
const PATIENCE: Duration = Duration::from_secs(10);

/// The pauses between two checks, until the guard is found in order or [`PATIENCE`] is over, and from then on.
const LOOK: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(5)];

/// The remedy where the guard is not on.
const ENABLE: &str =
    "run `/etc/init.d/millrace-guard enable` and `/etc/init.d/millrace-guard start`";

/// The number of checks so far; a newer check, perhaps of a changed list, ends an older one.
static LOOKS: AtomicU32 = AtomicU32::new(0);

/// Checks from now on whether all listed devices are guarded. Reports faults to netifd that two looks in turn have found,
/// the first after [`PATIENCE`], and when they are mended.
pub(super) fn look(network: &Network, orders: &Orders) {
    let number = LOOKS.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    if network.only_through.is_empty() {
        return orders.faults(source::GUARD, Vec::new());
    }
    let (interface, device) = (network.interface.clone(), network.device());
    let (lans, orders) = (network.only_through.clone(), orders.clone());
    let looks = move || {
        privileges::confine_this_thread();
        let end = Instant::now() + PATIENCE;
        let fault = |words| Fault {
            code: code::CONFIG_FAULT.to_owned(),
            words: format!("{interface}.{OPTION}: {words}"),
        };
        let (mut pause, mut told, mut last) = (LOOK[0], None, None);
        loop {
            let list: Vec<Fault> = faults(&device, &lans).into_iter().map(fault).collect();
            if LOOKS.load(Ordering::Relaxed) != number {
                return;
            }
            if list.is_empty() || Instant::now() > end {
                pause = LOOK[1];
                // A look while the guard is set again, or the firewall loads, may fail.
                let is_sure = list.is_empty() || last.as_ref() == Some(&list);
                if is_sure && told.as_ref() != Some(&list) {
                    list.iter().for_each(|it| log::warn!("{}", it.words));
                    orders.faults(source::GUARD, list.clone());
                    told = Some(list.clone());
                }
            }
            last = Some(list);
            thread::sleep(pause);
        }
    };
    let thread = thread::Builder::new().name("only-through".to_owned());
    if let Err(error) = thread.spawn(looks) {
        log::warn!("cannot check whether the guard blocks the devices in only_through: {error}");
    }
}

/// Faults of the list: devices that are not guarded now, or whose packets do not pass.
fn faults(device: &str, lans: &[Lan]) -> Vec<String> {
    let report = match steer::guard::status(None) {
        Ok(report) => report,
        Err(error) => return vec![error.to_string()],
    };
    if !report.asked || report.state == State::Off {
        let how = match steer::guard::is_let_go() {
            true => {
                "it was switched off by `millrace guard off`; `millrace guard on` sets it again"
            }
            false => ENABLE,
        };
        return vec![format!("is not enforced, as the guard is off: {how}")];
    }
    let groups = report.guard.map(|it| it.groups).unwrap_or_default();
    let fault = |lan: &Lan| {
        let there = Path::new("/sys/class/net").join(&lan.device);
        if !lan.is_known && !there.exists() {
            return Some(unknown_words(&lan.name));
        }
        let mut of_lan = groups.iter().filter(|it| it.lan.contains(&lan.device));
        match of_lan.next() {
            None => Some(format!(
                "{}: is not enforced: the guard was set before it was listed, or rejects it (see `millrace guard \
                 status`); {ENABLE}, or `reload`",
                lan.name
            )),
            Some(group) if group.tunnels.iter().any(|it| it.matches(device)) => None,
            Some(_) => Some(format!(
                "{}: its packets cannot leave through {device}: `tunnels` in {} does not list that device",
                lan.name,
                config::guard::DEFAULT_PATH
            )),
        }
    };
    lans.iter().filter_map(fault).collect()
}
