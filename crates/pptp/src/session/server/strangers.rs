//! Limits clients that have not logged in: anyone who can reach the port. They get few places, for a short time, and no
//! address.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use crate::control::CloseReason;
use crate::session::output::DownReason;
use crate::session::server::{Client, ConnectionId, Server, ServerOutput};

/// Time that a control connection may exist without a logged-in client.
const PATIENCE: Duration = Duration::from_secs(60);

/// Maximum number of calls that a control connection may request without a login.
const CALLS_MAX: u16 = 16;

impl Client {
    /// When the connection is closed for lack of a login.
    pub(super) fn patience(&self) -> Option<Instant> {
        let waits = self.stranger.filter(|_| !self.connection.is_closed());
        waits.map(|since| since + PATIENCE)
    }

    /// Counts a request for a call. Returns whether the client requests too many without a login.
    pub(super) fn is_insatiable(&mut self) -> bool {
        self.asked = self.asked.saturating_add(1);
        self.asked > CALLS_MAX
    }

    fn logged_in(&mut self) {
        self.admitted += 1;
        self.stranger = None;
        self.asked = 0;
    }

    /// Records the end of a call whose client had logged in.
    pub(super) fn lost_call(&mut self, now: Instant) {
        self.admitted = self.admitted.saturating_sub(1);
        if self.admitted == 0 {
            self.stranger = Some(now);
        }
    }
}

impl Server {
    /// Assigns an address to a client that has logged in.
    pub(super) fn logged_in(&mut self, call: u16, now: Instant, out: &mut Vec<ServerOutput>) {
        let Some(found) = self.calls.get(&call) else {
            return;
        };
        // The client may have logged in before.
        let before = found.inner;
        if before.is_none() && self.pool.is_empty() {
            self.make_place(call, now, out);
        }
        let Some(found) = self.calls.get_mut(&call) else {
            return;
        };
        match before.or_else(|| self.pool.pop()) {
            Some(inner) => {
                found.inner = Some(inner);
                found.call.admit(inner, now, &mut self.outputs);
                let client = self.clients.get_mut(&found.connection);
                if let Some(client) = client.filter(|_| before.is_none()) {
                    client.logged_in();
                }
            }
            None => {
                let reason = DownReason::NoAddress;
                found.call.fail(reason, now, &mut self.outputs);
            }
        }
        self.link_outputs(call, now, out);
    }

    /// Ends the oldest call of the account with the most calls, if that account has at least two more than the
    /// newcomer's; otherwise the oldest call of the newcomer's account. So no account can hold all addresses while
    /// another has fewer, and a client that returns from another address replaces its old call.
    fn make_place(&mut self, newcomer: u16, now: Instant, out: &mut Vec<ServerOutput>) {
        let accounts = self.of_accounts();
        let own = self.calls.get(&newcomer).and_then(|it| it.call.account());
        let own = accounts.get(own.unwrap_or_default());
        let own = own.map_or(&[][..], Vec::as_slice);
        let most = accounts.values().max_by_key(|ids| ids.len());
        let most = most.filter(|ids| ids.len() >= own.len() + 2);
        let ids = most.map_or(own, Vec::as_slice);
        // Call IDs are assigned in sequence and wrap around.
        let oldest = ids
            .iter()
            .max_by_key(|id| self.next_call.wrapping_sub(**id));
        let oldest = oldest.copied();
        if let Some((id, found)) = oldest.and_then(|id| Some((id, self.calls.get_mut(&id)?))) {
            found
                .call
                .fail(DownReason::NoAddress, now, &mut self.outputs);
            self.link_outputs(id, now, out);
        }
    }

    /// The calls that have addresses, by account.
    fn of_accounts(&self) -> BTreeMap<&[u8], Vec<u16>> {
        let mut found: BTreeMap<&[u8], Vec<u16>> = BTreeMap::new();
        for (&id, call) in self.calls.iter().filter(|(_, it)| it.inner.is_some()) {
            let account = call.call.account().unwrap_or_default();
            found.entry(account).or_default().push(id);
        }
        found
    }

    /// Whether a connection has a call without a login.
    pub(super) fn waits_for_login(&self, id: ConnectionId) -> bool {
        let mut calls = self.calls.values();
        calls.any(|call| call.connection == id && call.inner.is_none())
    }

    fn strangers(&self) -> impl Iterator<Item = (ConnectionId, Ipv4Addr, Instant)> {
        let clients = self.clients.iter();
        let open = clients.filter(|(_, client)| !client.connection.is_closed());
        open.filter_map(|(&id, client)| Some((id, client.ends.theirs, client.stranger?)))
    }

    /// Closes a stranger's connection if there are too many. It takes the address with the most connections, prefers
    /// those without a call, and closes the oldest. So a client from another address gets in.
    pub(super) fn make_room(
        &mut self,
        newcomer: Ipv4Addr,
        now: Instant,
        out: &mut Vec<ServerOutput>,
    ) {
        if self.strangers().count() < self.settings.max_strangers {
            return;
        }
        let mut of_source = BTreeMap::from([(newcomer, 1)]);
        for (_, source, _) in self.strangers() {
            *of_source.entry(source).or_insert(0) += 1;
        }
        let greediest = of_source.values().max().copied();
        let candidates = self
            .strangers()
            .filter(|(_, source, _)| of_source.get(source).copied() == greediest);
        let oldest = candidates.min_by_key(|&(id, _, since)| (self.waits_for_login(id), since, id));
        if let Some((id, ..)) = oldest {
            self.turned_away += 1;
            self.on_connection(id, now, out, |it| it.abandon(CloseReason::Crowded));
        }
    }

    /// Closes connections whose clients take too long to log in.
    pub(super) fn expire_strangers(&mut self, now: Instant, out: &mut Vec<ServerOutput>) {
        let late = self.strangers();
        let late = late.filter(|(_, _, since)| *since + PATIENCE <= now);
        let late: Vec<ConnectionId> = late.map(|(id, ..)| id).collect();
        for id in late {
            self.on_connection(id, now, out, |it| it.abandon(CloseReason::NoLogin));
        }
    }
}
