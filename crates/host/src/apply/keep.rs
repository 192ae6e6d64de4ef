//! Restores routes, rules and addresses of a plan that another program removes while the tunnel is up.

use std::time::{Duration, Instant};

use super::effect::{execute, exists};
use super::rivals::Rivals;
use super::{Applied, ApplyError};
use crate::step::Step;
use crate::system::System;
use crate::ways::metric_of;

/// Rounds of restoring within a [`WINDOW`]; another daemon may remove the steps each time.
const ROUNDS: u32 = 3;

/// Maximum number of messages about refused steps that are kept: a server may push many routes.
pub(super) const REFUSED_MAX: usize = 32;

const WINDOW: Duration = Duration::from_secs(60);

/// Who removed the missing steps.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Taker {
    /// Another program removed the steps.
    Another,
    /// The kernel removed the steps at a change of this tunnel's own.
    Change,
}

/// The rounds in which steps were restored.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    since: Option<Instant>,
    count: u32,
}

impl Rounds {
    fn are_used_up(&mut self) -> bool {
        let now = Instant::now();
        if self.since.is_none_or(|since| now - since > WINDOW) {
            (self.since, self.count) = (Some(now), 0);
        }
        self.count >= ROUNDS
    }
}

impl Applied {
    /// Restores steps that another program removed. Reports steps that cannot be restored, and routes that win over the
    /// tunnel's.
    pub(super) fn keep(&mut self, system: &mut dyn System) -> Result<(), ApplyError> {
        self.keep_from(Taker::Another, system)
    }

    /// Restores missing steps, as [`Applied::keep`] does.
    pub(super) fn keep_from(
        &mut self,
        taker: Taker,
        system: &mut dyn System,
    ) -> Result<(), ApplyError> {
        // Other code reports that the interface is gone.
        let Ok(dev) = system.index_of(&self.ifname) else {
            return Ok(());
        };
        let others = self.other_devices(system);
        let used_up = taker == Taker::Another && self.rounds.are_used_up();
        let (mut is_back, mut lost, mut gone) = (false, Vec::new(), Vec::new());
        for step in self.missing(dev, &others, system)? {
            let name = step.name();
            if used_up {
                let without = step.without();
                lost.push(format!("another program keeps removing {name}: {without}"));
                gone.push(step);
                continue;
            }
            // The route may exist behind another: it must be deleted first, or the kernel refuses to put it in front.
            if let Some(route) = step.route(Some(dev)).filter(|it| it.dst.is_ipv4()) {
                let _ = system.delete_route(&route);
            }
            match execute(&step, &self.ifname, dev, system) {
                Ok(()) if taker == Taker::Change => {}
                Ok(()) => {
                    is_back = true;
                    log::warn!(
                        "{}: another program removed {name}; restored it",
                        self.ifname
                    );
                }
                Err(error) => {
                    let without = step.without();
                    lost.push(format!(
                        "another program removed {name}, which cannot be restored: {error}: {without}"
                    ));
                    gone.push(step);
                }
            }
        }
        self.rounds.count += u32::from(is_back);
        let mut rivals = Rivals::beside(dev, others.clone());
        for step in &self.done {
            lost.extend(rivals.shadow(step, system)?);
        }
        lost.extend(self.judge_ways(dev, &others, &gone, system)?);
        self.tell_lost(lost);
        Ok(())
    }

    /// Steps that were done and are no longer in force. A route of another tunnel may go before.
    fn missing(
        &self,
        dev: u32,
        others: &[u32],
        system: &mut dyn System,
    ) -> Result<Vec<Step>, ApplyError> {
        let routes = system.routes(None)?;
        let addresses = system.addresses(dev)?;
        let mut missing = Vec::new();
        for step in self.done.iter().chain(&self.found) {
            let stands = match step {
                Step::Address { addr, .. } => addresses.iter().any(|it| it.ip == *addr),
                // `OuterRoute`s that follow the host's routes are excluded: `follow` handles them.
                Step::Route { .. }
                | Step::Unreachable { .. }
                | Step::OuterRoute { towards: None, .. } => {
                    let Some(made) = step.route(Some(dev)) else {
                        continue;
                    };
                    let mut equal = routes.iter().filter(|it| {
                        (it.table, it.dst, it.prefix) == (made.table, made.dst, made.prefix)
                            && metric_of(it) == metric_of(&made)
                            && !it.dev.is_some_and(|dev| others.contains(&dev))
                    });
                    let is_made = |it: &netio::netlink::Route| {
                        it.kind == made.kind && (made.dev.is_none() || it.dev == made.dev)
                    };
                    match made.dst.is_ipv4() {
                        true => equal.next().is_some_and(is_made),
                        false => equal.any(is_made),
                    }
                }
                Step::UnmarkedRule { .. } | Step::MainRule { .. } => exists(step, system)?,
                Step::Masquerade { interface, .. } => {
                    system.has_table(&Step::table_of(interface)).unwrap_or(true)
                }
                // An interface's setting goes with the interface.
                Step::Sysctl { key, value, .. } => {
                    system.sysctl(key).is_none_or(|now| now == *value)
                }
                _ => true,
            };
            if !stands {
                missing.push(step.clone());
            }
        }
        Ok(missing)
    }

    /// Puts the present losses into the status, and new ones into the log.
    pub(super) fn tell_lost(&mut self, mut lost: Vec<String>) {
        lost.retain(|why| !self.refused.iter().any(|(_, known)| known == why));
        lost.truncate(REFUSED_MAX);
        for why in lost.iter().filter(|why| !self.lost.contains(why)) {
            log::error!("{}: {why}", self.ifname);
        }
        self.lost = lost;
    }
}
