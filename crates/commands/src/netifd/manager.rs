//! The manager through which the tunnel's services use netifd.

use super::code;
use super::given::{At, Given, Kind, fault};
use super::telling::{Orders, source};
use host::{Manager, SharedManager, Want};
use netio::tun::Kept;
use openwrt::device_name;
use openwrt::update::{RouteRules, Update};
use std::net::Ipv6Addr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// The network devices that exist.
const DEVICES: &str = "/sys/class/net";

/// Reports one tunnel's state to netifd.
#[derive(Debug)]
pub(super) struct Netifd {
    at: At,
    device: String,
    orders: Orders,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    rules: RouteRules,
    prefixes: Vec<(Ipv6Addr, u8)>,
    /// Whether endpoints covered through the tunnel's routes get routes past it.
    host_route: bool,
    /// Whether netifd must not restart the interface after rejected credentials.
    auth_fail: bool,
    /// The digest of the tunnel's configuration.
    digest: [u8; 32],
    /// Whether the tunnel is a server of OpenVPN or PPTP, which would hang up on its clients.
    server: bool,
    /// Whether the log already says why no new program takes over.
    said: bool,
    /// Why credentials were refused.
    refused: Option<String>,
    /// Why the tunnel has ended.
    failed: Option<String>,
    /// The device, once a new program is to run the tunnel.
    kept: Option<Kept>,
}

impl Netifd {
    pub(super) fn new(at: &At, given: &Given, orders: Orders) -> Self {
        Self {
            at: at.clone(),
            device: device_name(&at.interface),
            orders,
            state: Mutex::new(State {
                rules: given.network.routes,
                prefixes: given.network.prefixes.clone(),
                host_route: given.keeps_endpoints(),
                auth_fail: given.network.auth_fail,
                digest: given.digest,
                server: given.server,
                said: false,
                refused: None,
                failed: None,
                kept: None,
            }),
        }
    }

    /// The manager, shared with services.
    pub(super) fn shared(self: &Arc<Self>) -> SharedManager {
        let shared: SharedManager = self.clone();
        shared
    }

    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The network device.
    pub(super) fn device(&self) -> &str {
        &self.device
    }

    /// Takes over a changed configuration's settings for routes.
    pub(super) fn change(&self, given: &Given) {
        self.with(|state| {
            state.rules = given.network.routes;
            state.prefixes.clone_from(&given.network.prefixes);
            state.host_route = given.keeps_endpoints();
            state.auth_fail = given.network.auth_fail;
            state.digest = given.digest;
            state.server = given.server;
        });
    }

    /// Whether netifd must not restart the interface after rejected credentials.
    pub(super) fn blocks(&self) -> bool {
        self.with(|state| state.auth_fail)
    }

    /// Why the credentials were refused, if they were.
    pub(super) fn take_refused(&self) -> Option<String> {
        self.with(|state| state.refused.take())
    }

    /// Why the tunnel has ended, if its service has said so.
    pub(super) fn take_failed(&self) -> Option<String> {
        self.with(|state| state.failed.take())
    }

    /// The device, if a new program is to run the tunnel.
    pub(super) fn take_kept(&self) -> Option<Kept> {
        self.with(|state| state.kept.take())
    }

    /// Keeps the device if a new program has replaced this one and can run the tunnel. Then the tunnel is to end.
    pub(super) fn is_renewed(&self) -> bool {
        let program = &self.at.program;
        if !program.is_replaced() {
            return false;
        }
        if let Some(why) = self.stays() {
            if !self.with(|state| std::mem::replace(&mut state.said, true)) {
                log::warn!("{}: the old program goes on: {why}", self.at.interface);
            }
            return false;
        }
        if !program.has_successor(&self.at.interface) {
            return false;
        }
        match Kept::of(&self.device) {
            Ok(kept) => self.with(|state| state.kept = Some(kept)),
            Err(error) => {
                log::warn!("{}: the old program goes on: {error}", self.at.interface);
                return false;
            }
        }
        true
    }

    /// Why no new program can take over the tunnel.
    fn stays(&self) -> Option<&'static str> {
        if self.with(|state| state.server) {
            return Some("a new one would hang up on all clients; run `ifdown` and `ifup`");
        }
        if Kept::has(&self.device) {
            return None;
        }
        Some(match Path::new(DEVICES).join(&self.device).exists() {
            true => "OpenVPN in the kernel keeps its program; run `ifdown` and `ifup`",
            false => "it has no device yet; reload again once the tunnel is up",
        })
    }

    /// Reads the present configuration, and reports why it cannot be used.
    pub(super) fn read(&self) -> Option<Given> {
        let given = Given::read(&self.at);
        let faults = given.as_ref().err().cloned().unwrap_or_default();
        for fault in &faults {
            log::error!("{}; the old configuration stays in use", fault.words);
        }
        self.orders.faults(source::REFUSED, faults);
        given.ok()
    }
}

impl Manager for Netifd {
    fn set(&self, want: &Want) {
        let (rules, prefixes) = self.with(|state| {
            state.refused = None;
            (state.rules, state.prefixes.clone())
        });
        let mut update = Update::of(want, &self.device, rules);
        update.prefixes = prefixes;
        self.orders.up(update);
    }

    fn lost(&self) {
        if !self.is_succeeded() {
            self.orders.lost();
        }
    }

    fn is_succeeded(&self) -> bool {
        self.with(|state| state.kept.is_some())
    }

    fn refused(&self, why: &str) {
        self.with(|state| state.refused = Some(why.to_owned()));
    }

    fn failed(&self, why: &str) {
        self.with(|state| state.failed = Some(why.to_owned()));
    }

    fn silent(&self, why: Option<&str>) {
        let list = why.map(|why| fault(code::NO_ANSWER, why.to_owned()));
        self.orders
            .faults(source::ANSWERS, list.unwrap_or_default());
    }

    fn keeps_endpoints(&self, v6: bool) -> bool {
        self.with(|state| {
            let own = match v6 {
                true => state.rules.own_table_v6,
                false => state.rules.own_table_v4,
            };
            state.host_route && !own
        })
    }

    fn wants_reload(&self) -> bool {
        if self.is_renewed() {
            return true;
        }
        let Some(given) = self.read() else {
            return false;
        };
        let changed = self.with(|state| {
            state.auth_fail = given.network.auth_fail;
            state.digest != given.digest
        });
        // A changed tunnel is recreated, and reports these notes then.
        if !changed {
            given.tell(&self.at.interface, &self.orders);
        }
        changed
    }

    fn takes_reload(&self) -> bool {
        let Some(given) = self.read() else {
            return false;
        };
        if !matches!(given.kind, Kind::OpenVpn(_)) {
            log::warn!(
                "{}: the tunnel's protocol has changed; run `ifup`",
                self.at.interface
            );
            return false;
        }
        given.tell(&self.at.interface, &self.orders);
        self.change(&given);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netifd::anew::Program;
    use crate::netifd::given::tests::matches;
    use crate::netifd::telling::Telling;
    use std::fs;

    #[test]
    fn what_needs_no_new_tunnel_is_taken_over_in_place() {
        let directory = tempfile::tempdir().unwrap();
        let at = At {
            interface: "office".to_owned(),
            uci: directory.path().to_owned(),
            ubus: Some(directory.path().join("none")),
            program: Program::running(),
            matches: matches(""),
        };
        let write = |more: &str| {
            let text = format!(
                "config interface office\n option proto millrace\n\
                 option private_key yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n{more}\n"
            );
            fs::write(directory.path().join("network"), text).unwrap();
        };
        write("");
        let telling = Telling::start(&at.interface, at.ubus.as_deref(), Arc::default(), false);
        let telling = telling.unwrap();
        let given = Given::read(&at).unwrap();
        let netifd = Netifd::new(&at, &given, telling.teller());
        assert!(!netifd.wants_reload() && netifd.blocks());
        write(" option authfail 0");
        assert!(!netifd.wants_reload() && !netifd.blocks());
        // A faulty configuration changes nothing.
        write(" option 'mtu");
        assert!(!netifd.wants_reload() && !netifd.blocks());
        for change in ["mtu 1400", "dataplane user"] {
            write(&format!(" option {change}"));
            assert!(netifd.wants_reload() && netifd.blocks(), "{change}");
        }
        telling.end();
    }
}
