//! A netifd interface reports when the guard does not guard the LANs in its `only_through`, and is silent when it does.

use lab::acceptance::netifd::Netifd;
use lab::acceptance::{PROGRAM, Site, ready};
use lab::{require, tools};
use std::fs;

#[test]
fn a_list_that_is_not_held_is_a_fault() {
    if !ready() || require(tools::find("nft")).is_none() {
        return;
    }
    let site = Site::new();
    let a = &site.net.a;
    let write = |more: &str| {
        let text = format!(
            "config interface 'office'\n\toption proto 'millrace'\n\toption private_key '{}'\n\
             \toption multipath 'off'\n\tlist addresses '10.0.0.1/24'\n\tlist only_through 'lan'\n{more}\
             config interface 'lan'\n\toption device 'br-lan'\n\toption proto 'static'\n",
            site.keys_a.private
        );
        let new = site.directory.file("new", &text);
        fs::rename(new, site.directory.path().join("network")).unwrap();
    };
    let guard = |word: &str| {
        let command = a.command(PROGRAM).args(["guard", word, "--uci"]);
        let exit = command.arg(site.directory.path()).exit().unwrap();
        exit.status.code()
    };
    write("");
    let mut netifd = Netifd::start(a, "office", site.directory.path());
    netifd.if_up();
    netifd.until_up();
    let fault = netifd.until_fault("CONFIG_FAULT");
    assert!(
        fault.contains("office.only_through: is not enforced, as the guard is off")
            && fault.contains("/etc/init.d/millrace-guard enable"),
        "{fault}"
    );
    // The fault leaves when the guard is switched on.
    assert_eq!(guard("on"), Some(0));
    netifd.until_faults(&[]);
    netifd.if_down();

    // The guard is on: the unknown name is the only fault, and the list of enforced devices is empty.
    write("\tlist only_through 'nowhere'\n");
    assert_eq!(guard("reload"), Some(1), "not all of it is held");
    netifd.if_up();
    netifd.until_up();
    let fault = netifd.until_fault("CONFIG_FAULT");
    assert!(
        fault.contains("no interface or device is called nowhere, so nothing is blocked for it"),
        "{fault}"
    );
    assert_eq!(netifd.faults().len(), 1, "{:?}", netifd.faults());
}
