//! Changes from one plan to another while the tunnel is up.

use std::net::IpAddr;

use super::effect::revert;
use super::keep::Taker;
use super::rivals::Rivals;
use super::{Applied, ApplyError};
use crate::plan::Plan;
use crate::plan::closed::Networks;
use crate::step::Step;
use crate::system::System;

impl Applied {
    /// Does the steps that only `new` has, then undoes those that only `old` has, which is in force. Steps of both
    /// plans stay untouched.
    ///
    /// [`MtuFollower`](crate::MtuFollower) sets the MTU, because it knows whether another program has set it.
    ///
    /// Returns the errors of new steps; all steps are tried. Logs steps that could not be undone.
    pub fn change(&mut self, old: &Plan, new: &Plan, system: &mut dyn System) -> Vec<ApplyError> {
        let dev = match system.index_of(&self.ifname) {
            Ok(dev) => dev,
            Err(error) => return vec![error.into()],
        };
        let (mut errors, mut undone) = (Vec::new(), Vec::new());
        let mut rivals = Rivals::new(dev);
        self.forget_refused(new);
        let past = new.steps.iter().filter(|it| !old.steps.contains(it));
        let past = past.filter(|it| !self.is_past(it));
        let past: Vec<IpAddr> = past.filter_map(Step::towards).collect();
        let ways = self.ways(&past, system);
        for step in &new.steps {
            // The route to a server has followed an uplink since, or was made when the tunnel connected to the server.
            let is_there = old.steps.contains(step) || self.is_past(step);
            if is_there || matches!(step, Step::Mtu { .. }) {
                continue;
            }
            if let Err(error) = self.step(step, &mut rivals, system) {
                self.refuse(step, error.to_string());
                errors.push(error);
            }
        }
        match ways {
            Ok(ways) => self.saw(ways),
            Err(error) => undone.push(error),
        }
        self.keep_routes_of_addresses(old, new, system);
        let has_dns = new.steps.iter().any(|it| matches!(it, Step::Dns { .. }));
        let has_table = new.steps.iter().any(Step::masquerades);
        for step in old.steps.iter().rev() {
            if new.steps.contains(step) {
                continue;
            }
            // New name servers have replaced the old ones.
            if has_dns && matches!(step, Step::Dns { .. }) {
                self.done.retain(|done| done != step);
            } else if has_table && step.masquerades() {
                self.forget_replaced_tables(new);
            } else {
                undone.extend(self.retire(step, system).err());
            }
        }
        // Routes past the tunnel to servers that the tunnel no longer uses.
        let stale = self.done.iter().filter(|done| {
            let mut planned = new.steps.iter();
            done.towards().is_some() && !planned.any(|step| step.leads_where(done))
        });
        for step in stale.cloned().collect::<Vec<_>>() {
            undone.extend(self.retire(&step, system).err());
        }
        undone.extend(self.keep_from(Taker::Change, system).err());
        for error in undone {
            log::warn!("{}: {error}", self.ifname);
        }
        errors
    }

    /// Whether the planned step is a route past the tunnel that was made already.
    fn is_past(&self, step: &Step) -> bool {
        let is_outer = matches!(step, Step::OuterRoute { .. });
        is_outer && self.done.iter().any(|done| done.is_made_for(step))
    }

    /// The steps of [`Plan::close_behind`] that are in force.
    pub fn closed(&self) -> impl Iterator<Item = Step> {
        let closed = self.done.iter().filter_map(Step::closed);
        closed.map(Step::close)
    }

    /// Opens networks that [`Plan::close_behind`] closed, if the host has a route to them now.
    ///
    /// # Errors
    /// When the kernel refuses to list its routes, or to delete one.
    pub fn open_closed(&mut self, system: &mut dyn System) -> Result<(), ApplyError> {
        let closed: Vec<Step> = self.closed().collect();
        if closed.is_empty() {
            return Ok(());
        }
        let outside = Networks::outside(&self.ifname, system)?;
        let is_outside = |step: &Step| step.closed().is_some_and(|it| outside.contain(it));
        for step in closed.iter().filter(|it| is_outside(it)) {
            self.retire(step, system)?;
        }
        Ok(())
    }

    /// Makes the kernel keep an interface's second address when the first one of the same network is removed. With the
    /// last address the kernel removes all routes of the interface, default routes included.
    fn keep_routes_of_addresses(&self, old: &Plan, new: &Plan, system: &mut dyn System) {
        let goes = |step: &Step| matches!(step, Step::Address { .. }) && !new.steps.contains(step);
        if !old.steps.iter().any(goes) {
            return;
        }
        let key = format!("net/ipv4/conf/{}/promote_secondaries", self.ifname);
        if let Err(error) = system.set_sysctl(&key, "1") {
            log::debug!("{key}: {error}");
        }
    }

    /// Forgets the nftables tables that the table of `new` has replaced: none, if the kernel refused it.
    fn forget_replaced_tables(&mut self, new: &Plan) {
        let stays = |done: &Step| new.steps.iter().any(|step| done.is_made_for(step));
        let mut tables = self.done.iter().filter(|it| it.masquerades());
        if tables.any(stays) {
            self.done.retain(|it| !it.masquerades() || stays(it));
        }
    }

    /// Undoes one step. A setting of the whole host stays until the end, since others may rely on it.
    fn retire(&mut self, step: &Step, system: &mut dyn System) -> Result<(), ApplyError> {
        self.found.retain(|found| found != step);
        // A setting that was there before the tunnel stays.
        let same = |done: &&Step| *done == step;
        let done = self.done.iter().find(same);
        let done = done.or_else(|| self.done.iter().find(|done| done.is_made_for(step)));
        // The table of an earlier plan, if the kernel refused this one's.
        let is_table = |done: &&Step| step.masquerades() && done.masquerades();
        let done = done.or_else(|| self.done.iter().find(is_table));
        let (Some(journal), Some(step)) = (&self.journal, done.cloned()) else {
            return Ok(());
        };
        let errors = match step {
            Step::Sysctl { .. } => Vec::new(),
            _ => revert(std::slice::from_ref(&step), &self.ifname, system, journal),
        };
        self.done.retain(|done| *done != step);
        if !matches!(step, Step::Dns { .. }) && !step.belongs_to_interface() {
            self.retired.push(step);
        }
        errors.into_iter().next().map_or(Ok(()), Err)
    }
}
