//! netifd, as the tunnel's services see it.

use super::given::{At, Given};
use super::telling::Orders;
use host::{Manager, SharedManager, Want};
use openwrt::device_name;
use openwrt::update::{RouteRules, Update};
use std::sync::{Arc, Mutex, PoisonError};

/// What netifd is told of one tunnel, and how.
#[derive(Debug)]
pub(super) struct Netifd {
    at: At,
    device: String,
    orders: Orders,
    auth_fail: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    rules: RouteRules,
    /// Endpoints get routes past the tunnel, where its routes cover them.
    host_route: bool,
    /// What the tunnel was made with.
    digest: [u8; 32],
    /// Why credentials were refused.
    refused: Option<String>,
}

impl Netifd {
    pub(super) fn new(at: &At, given: &Given, orders: Orders) -> Self {
        Self {
            at: at.clone(),
            device: device_name(&at.interface),
            orders,
            auth_fail: given.network.auth_fail,
            state: Mutex::new(State {
                rules: given.network.routes,
                host_route: given.keeps_endpoints(),
                digest: given.digest,
                refused: None,
            }),
        }
    }

    /// As services know it.
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

    /// The configuration says other things of routes.
    pub(super) fn change(&self, given: &Given) {
        self.with(|state| {
            state.rules = given.network.routes;
            state.host_route = given.keeps_endpoints();
            state.digest = given.digest;
        });
    }

    /// Whether netifd is not to start the interface again after a refusal.
    pub(super) fn blocks(&self) -> bool {
        self.auth_fail
    }

    /// Why the credentials were refused, if they were.
    pub(super) fn take_refused(&self) -> Option<String> {
        self.with(|state| state.refused.take())
    }
}

impl Manager for Netifd {
    fn set(&self, want: &Want) {
        let rules = self.with(|state| {
            state.refused = None;
            state.rules
        });
        self.orders.up(Update::of(want, &self.device, rules));
    }

    fn lost(&self) {
        self.orders.lost();
    }

    fn refused(&self, why: &str) {
        self.with(|state| state.refused = Some(why.to_owned()));
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
        match Given::read(&self.at) {
            Ok(given) => self.with(|state| state.digest != given.digest),
            Err(faults) => {
                for fault in faults {
                    log::error!("{}; going on as before", fault.words);
                }
                false
            }
        }
    }
}
