//! Compares the lists of OpenWrt's interfaces (`only_through`) with the guard in force.

use std::path::Path;

use config::guard::Guard;
use openwrt::only_through::Lists;
use steer::guard::Report;

use super::wanted::unheld_of;

/// Adds faults of lists to a report. Returns whether all listed devices are held.
pub(super) fn judge(uci: &Path, report: &mut Report) -> bool {
    let lists = match Lists::of(uci) {
        Ok(lists) => lists,
        Err(error) => {
            report
                .notes
                .push(format!("{}: {error}", uci.join("network").display()));
            return false;
        }
    };
    let mut notes = unheld_of(&lists);
    let in_force = report.guard.clone().unwrap_or_default();
    let groups = in_force.groups.clone();
    let (wanted, left) = in_force.with_lists(&lists.lists, &groups);
    notes.extend(left);
    // A removed list would still hold devices; a new one would not hold its devices yet.
    let is_in_force =
        report.asked && wanted.groups == groups || wanted.groups.is_empty() && groups.is_empty();
    if !is_in_force {
        notes.push(what_to_do(&wanted));
    }
    let is_held = notes.is_empty();
    report.notes.extend(notes);
    is_held
}

/// Whether interfaces list devices, and none of them can be held.
pub(super) fn is_refused(uci: &Path) -> bool {
    Lists::of(uci).is_ok_and(|it| it.is_empty() && !it.faults.is_empty())
}

fn what_to_do(wanted: &Guard) -> String {
    let devices: Vec<&str> = wanted
        .groups
        .iter()
        .flat_map(|it| &it.lan)
        .map(String::as_str)
        .collect();
    let listed = match devices.is_empty() {
        true => "nothing any more".to_owned(),
        false => devices.join(", "),
    };
    let how = match steer::guard::is_let_go() {
        true => "it was let go by `millrace guard off`; `millrace guard on` sets it again",
        false => "run `/etc/init.d/millrace-guard enable` and `start`, or `reload`",
    };
    format!("interfaces list {listed} (only_through), and that is not what is in force: {how}")
}
