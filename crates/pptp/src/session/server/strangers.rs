//! Limits clients that have not logged in: anyone who can reach the port. They get few places, for a short time, and no
//! address.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use crate::control::CloseReason;
use crate::session::output::DownReason;
use crate::session::server::{Client, ConnectionId, Server, ServerCall, ServerOutput};

/// Time that a control connection may exist without a logged-in client.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time that a call has to show that it is alive, before a client of the same account gets its address.
const ANSWER: Duration = Duration::from_secs(2);

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

impl ServerCall {
    /// When to stop waiting for a place.
    pub(super) fn waits_until(&self) -> Option<Instant> {
        Some(self.waits? + ANSWER)
    }
}

impl Server {
    /// Assigns an address to a client that has logged in. If all are taken, the client may have to wait until another
    /// call has not answered.
    pub(super) fn logged_in(&mut self, call: u16, now: Instant, out: &mut Vec<ServerOutput>) {
        let Some(found) = self.calls.get(&call) else {
            return;
        };
        // The client may have logged in before.
        if found.inner.is_none() && self.pool.is_empty() && self.waits_for_place(call, now, out) {
            return;
        }
        self.admit(call, now, out);
    }

    fn admit(&mut self, call: u16, now: Instant, out: &mut Vec<ServerOutput>) {
        let Some(found) = self.calls.get_mut(&call) else {
            return;
        };
        let before = found.inner;
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
    /// newcomer's. So no account can hold all addresses while another has fewer. Otherwise asks the calls of the
    /// newcomer's account whether they are alive: a client that returns from another address replaces its old call.
    /// Returns whether the newcomer has to wait for the answers.
    fn waits_for_place(
        &mut self,
        newcomer: u16,
        now: Instant,
        out: &mut Vec<ServerOutput>,
    ) -> bool {
        let mut accounts = self.of_accounts();
        let own = accounts.remove(&self.account(newcomer)).unwrap_or_default();
        let most = accounts.into_values().max_by_key(Vec::len);
        if let Some(most) = most.filter(|ids| ids.len() >= own.len() + 2) {
            // Call IDs are assigned in sequence and wrap around.
            let oldest = most
                .iter()
                .max_by_key(|id| self.next_call.wrapping_sub(**id));
            if let Some(&oldest) = oldest {
                self.replace(oldest, now, out);
            }
            return false;
        }
        for &id in &own {
            if let Some(found) = self.calls.get_mut(&id) {
                found.call.ask_echo(&mut self.outputs);
                self.link_outputs(id, now, out);
            }
        }
        if let Some(found) = self.calls.get_mut(&newcomer) {
            found.waits = Some(now).filter(|_| !own.is_empty());
        }
        !own.is_empty()
    }

    fn replace(&mut self, call: u16, now: Instant, out: &mut Vec<ServerOutput>) {
        if let Some(found) = self.calls.get_mut(&call) {
            let reason = DownReason::Replaced;
            found.call.fail(reason, now, &mut self.outputs);
            self.link_outputs(call, now, out);
        }
    }

    /// Admits the clients that have waited long enough, in place of calls that did not answer.
    pub(super) fn expire_newcomers(&mut self, now: Instant, out: &mut Vec<ServerOutput>) {
        let due = self.calls.iter();
        let due = due.filter(|(_, call)| call.waits_until().is_some_and(|at| at <= now));
        let due = due.filter_map(|(&id, call)| Some((id, call.waits?)));
        let due: Vec<(u16, Instant)> = due.collect();
        for (newcomer, since) in due {
            if let Some(found) = self.calls.get_mut(&newcomer) {
                found.waits = None;
            }
            if self.pool.is_empty() {
                let account = self.account(newcomer);
                let own = self.of_accounts().remove(&account).unwrap_or_default();
                let heard = |id: &u16| self.calls.get(id).and_then(|it| it.call.heard);
                let silent = own.into_iter().map(|id| (heard(&id), id)).min();
                if let Some((_, silent)) = silent.filter(|it| it.0 < Some(since)) {
                    self.replace(silent, now, out);
                }
            }
            self.admit(newcomer, now, out);
        }
    }

    /// The server's own name of the account with which a call's client has logged in: a client may put any domain before
    /// the name of a user without one.
    fn account(&self, call: u16) -> String {
        let user = self.calls.get(&call).and_then(|it| it.call.user.as_deref());
        let user = user.unwrap_or_default();
        match self.accounts.password(user) {
            Some(_) => user.to_owned(),
            None => user.rsplit('\\').next().unwrap_or(user).to_owned(),
        }
    }

    /// The calls that have addresses, by account.
    fn of_accounts(&self) -> BTreeMap<String, Vec<u16>> {
        let mut found: BTreeMap<String, Vec<u16>> = BTreeMap::new();
        for (&id, _) in self.calls.iter().filter(|(_, it)| it.inner.is_some()) {
            found.entry(self.account(id)).or_default().push(id);
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
