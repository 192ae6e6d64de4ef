//! Does the steps of a plan, and undoes them.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use netio::netlink::{Family, Netlink, NetlinkError, Route, Rule};
use thiserror::Error;

use super::dns::DnsError;
use super::facts::sysctl;
use super::journal::{self, DIRECTORY, Directory, Journal, JournalError};
use super::outer::{Way, same, with_free_metric};
use super::plan::Plan;
use super::step::{MAIN, Step};

/// Why a plan could not be applied, or not be undone. What had been done before it has been
/// undone.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum ApplyError {
    /// The kernel refused a change.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The name servers.
    #[error(transparent)]
    Dns(#[from] DnsError),
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A setting below `/proc/sys`.
    #[error("/proc/sys/{key}: {error}")]
    Sysctl {
        /// The setting.
        key: String,
        /// What the kernel said.
        error: io::Error,
    },
}

/// A plan that is in force. Dropping it undoes it too, but only [`Applied::undo`] says how that
/// went.
#[derive(Debug)]
pub(crate) struct Applied {
    pub(super) ifname: String,
    /// What has been done and is to be undone, in order.
    pub(super) done: Vec<Step>,
    /// Where the host's own routes led when they were last looked at.
    pub(super) seen: Vec<(IpAddr, Option<Way>)>,
    /// The interface stays when the process goes.
    persistent: bool,
    /// Gone once the steps have been undone.
    journal: Option<Journal>,
}

impl Applied {
    /// Applies `plan` to the interface, which must exist, in the namespace of `netlink`, which
    /// must be the process's own. The tunnel's sockets must have the plan's mark already.
    ///
    /// # Errors
    /// The first step that failed; the steps before it have been undone.
    pub(crate) fn apply(
        plan: &Plan,
        ifname: &str,
        netlink: &mut Netlink,
    ) -> Result<Self, ApplyError> {
        Self::apply_in(Path::new(DIRECTORY), plan, ifname, netlink)
    }

    fn apply_in(
        directory: &Path,
        plan: &Plan,
        ifname: &str,
        netlink: &mut Netlink,
    ) -> Result<Self, ApplyError> {
        let mut applied = Self {
            ifname: ifname.to_owned(),
            done: Vec::new(),
            seen: Vec::new(),
            persistent: is_persistent(ifname),
            journal: Some(recovered(&Directory::lock(directory)?, ifname, netlink)?.0),
        };
        // Dropped when it fails, and with that undone.
        applied.add(plan, netlink)?;
        Ok(applied)
    }

    /// Applies a further plan to the same interface: what has to wait until a script has run.
    ///
    /// # Errors
    /// The first step that failed; everything has been undone, the plans before it too.
    pub(crate) fn add(&mut self, plan: &Plan, netlink: &mut Netlink) -> Result<(), ApplyError> {
        let outcome = self.try_add(plan, netlink);
        if outcome.is_err() {
            for undo in self.take_back(netlink) {
                log::warn!("{}: {undo}", self.ifname);
            }
        }
        outcome
    }

    /// Changes from one plan to another that is in part the same: steps that only `before` has are undone, those that only
    /// `after` has are done.
    ///
    /// # Errors
    /// The first step that failed; what was in force and is in both plans still is.
    pub(crate) fn exchange(
        &mut self,
        before: &Plan,
        after: &Plan,
        netlink: &mut Netlink,
    ) -> Result<(), ApplyError> {
        let gone = |step: &Step| before.steps.contains(step) && !after.steps.contains(step);
        let (gone, kept) = std::mem::take(&mut self.done).into_iter().partition(gone);
        self.done = kept;
        if let Some(journal) = &self.journal {
            let gone: Vec<Step> = gone;
            for error in revert(&gone, &self.ifname, netlink, journal) {
                log::warn!("{}: {error}", self.ifname);
            }
        }
        let new = |step: &&Step| !before.steps.contains(step);
        let plan = Plan {
            steps: after.steps.iter().filter(new).cloned().collect(),
            ..after.clone()
        };
        self.try_add(&plan, netlink)
    }

    fn try_add(&mut self, plan: &Plan, netlink: &mut Netlink) -> Result<(), ApplyError> {
        let dev = netlink.index_of(&self.ifname)?;
        if let Some(journal) = &mut self.journal {
            journal.set_interface(dev);
        }
        for step in &plan.steps {
            self.step(step, dev, netlink)?;
        }
        self.look(netlink)
    }

    fn step(&mut self, step: &Step, dev: u32, netlink: &mut Netlink) -> Result<(), ApplyError> {
        // No other tunnel decides about the same step meanwhile.
        let _directory = match &self.journal {
            Some(journal) if step.may_be_shared() => Some(journal.directory()?),
            _ => None,
        };
        let others = self.others_steps();
        if step.outlives_interface() && exists(step, &others, netlink)? {
            // What another tunnel made goes with the last one that needs it. What somebody else
            // made is not ours to take away later.
            if let Some(shared) = others.into_iter().find(|other| other.is_shared_with(step)) {
                self.record(&shared)?;
                self.done.push(shared);
            }
            log::debug!("{}: there already: {step:?}", self.ifname);
            return Ok(());
        }
        let step = with_free_metric(step, netlink)?;
        let written =
            if step.outlives_interface() || (step.belongs_to_interface() && self.persistent) {
                Some(self.record(&step)?)
            } else {
                None
            };
        let remembered = written.is_some() || step.belongs_to_interface();
        match execute(&step, &self.ifname, dev, netlink) {
            Ok(()) => {
                if remembered {
                    self.done.push(step);
                }
                Ok(())
            }
            Err(error) if step.is_optional() => {
                if let (Some(mark), Some(journal)) = (written, &mut self.journal) {
                    journal.retract(mark)?;
                }
                // Servers push routes to the network that the interface brings by itself.
                if matches!(&error, ApplyError::Netlink(error) if error.is_exists()) {
                    log::debug!("{}: {error}", self.ifname);
                } else {
                    log::warn!("{}: {error}; going on without it", self.ifname);
                }
                Ok(())
            }
            Err(error) => {
                // It may have been done in part.
                if remembered {
                    self.done.push(step);
                }
                Err(error)
            }
        }
    }

    /// Writes down that a step is about to be done. The mark takes that back.
    pub(super) fn record(&mut self, step: &Step) -> Result<u64, ApplyError> {
        match &mut self.journal {
            Some(journal) => Ok(journal.record(step)?),
            None => Ok(0),
        }
    }

    /// Takes back what was written since the mark was made.
    pub(super) fn retract(&mut self, mark: u64) -> Result<(), ApplyError> {
        match &mut self.journal {
            Some(journal) => Ok(journal.retract(mark)?),
            None => Ok(()),
        }
    }

    /// The interfaces of the other tunnels that are up or were not undone, and what those did to the
    /// host.
    pub(super) fn others(&self) -> (Vec<String>, Vec<Step>) {
        let others = self.journal.as_ref().map(Journal::others);
        let others = others.unwrap_or_default().into_iter();
        let (names, steps): (Vec<String>, Vec<Vec<Step>>) =
            others.map(|other| (other.ifname, other.steps)).unzip();
        (names, steps.concat())
    }

    fn others_steps(&self) -> Vec<Step> {
        self.others().1
    }

    /// Takes everything back, in reverse order. What the kernel removes with the interface is
    /// left to it, unless the interface may stay.
    ///
    /// # Errors
    /// What could not be taken back; everything has been tried.
    pub(crate) fn undo(mut self) -> Result<(), Vec<ApplyError>> {
        let errors = match Netlink::open() {
            Ok(mut netlink) => self.take_back(&mut netlink),
            Err(error) => vec![error.into()],
        };
        if errors.is_empty() {
            Ok(())
        } else {
            Err(errors)
        }
    }

    /// Takes everything back and goes on with what `other` left of its journal: a process that has
    /// dropped its privileges could not open another.
    pub(crate) fn take_over(mut other: Self, netlink: &mut Netlink) -> Self {
        if let Some(journal) = &mut other.journal {
            let directory = journal.directory().inspect_err(|e| log::warn!("{e}"));
            let mut errors = revert(&other.done, &other.ifname, netlink, journal);
            errors.extend(journal.clear().err().map(ApplyError::from));
            drop(directory);
            for error in errors {
                log::warn!("{}: {error}", other.ifname);
            }
        }
        other.done.clear();
        other.seen.clear();
        other
    }

    fn take_back(&mut self, netlink: &mut Netlink) -> Vec<ApplyError> {
        let Some(journal) = self.journal.take() else {
            return Vec::new();
        };
        // Until the journal is gone too: another tunnel's end must not count on this one's.
        let _directory = journal.directory().inspect_err(|e| log::warn!("{e}"));
        let mut errors = revert(&self.done, &self.ifname, netlink, &journal);
        self.done.clear();
        // A journal of what could not be undone would only be tried again in vain.
        errors.extend(journal.remove().err().map(ApplyError::from));
        errors
    }
}

impl Drop for Applied {
    fn drop(&mut self) {
        if self.journal.is_none() {
            return;
        }
        match Netlink::open() {
            Ok(mut netlink) => {
                for error in self.take_back(&mut netlink) {
                    log::warn!("{}: {error}", self.ifname);
                }
            }
            Err(error) => log::warn!("{}: {error}", self.ifname),
        }
    }
}

/// Undoes what a daemon left behind that was killed while it had `ifname` up. Says whether there
/// was anything.
///
/// # Errors
/// [`JournalError::Running`] when it lives.
pub(crate) fn recover(ifname: &str) -> Result<bool, ApplyError> {
    let path = Path::new(DIRECTORY);
    // Not to make a file only to remove it.
    if !journal::path_of(path, ifname).exists() {
        return Ok(false);
    }
    let mut netlink = Netlink::open()?;
    let directory = Directory::lock(path)?;
    let (journal, any) = recovered(&directory, ifname, &mut netlink)?;
    journal.remove()?;
    Ok(any)
}

/// Undoes what daemons left behind that were killed, whatever interfaces they had: for tunnels
/// whose interface gets its name from the kernel. Returns the names.
///
/// Journals of living daemons are left alone, and those of other network namespaces.
///
/// # Errors
/// When the kernel gives no netlink socket. What cannot be undone is logged.
pub(crate) fn recover_all() -> Result<Vec<String>, ApplyError> {
    let mut recovered = Vec::new();
    let path = Path::new(DIRECTORY);
    if !path.exists() {
        return Ok(recovered);
    }
    let abandoned = Directory::lock(path)?.abandoned();
    for ifname in abandoned {
        match recover(&ifname) {
            Ok(true) => recovered.push(ifname),
            Ok(false) | Err(ApplyError::Journal(JournalError::Running { .. })) => {}
            Err(error @ ApplyError::Journal(_)) => log::warn!("{error}"),
            Err(error) => return Err(error),
        }
    }
    Ok(recovered)
}

/// The interface's journal, with what was left in it undone, and whether that was anything.
fn recovered(
    directory: &Directory,
    ifname: &str,
    netlink: &mut Netlink,
) -> Result<(Journal, bool), ApplyError> {
    let (mut journal, mut left) = Journal::open(directory, ifname)?;
    // An interface of that name may be another's by now, and so are its name servers and routes.
    let now = netlink.index_of(ifname);
    if now.is_ok_and(|index| index != left.interface) {
        left.steps.retain(|step| !step.is_by_interface_name());
    }
    let any = !left.steps.is_empty();
    if any {
        log::warn!("{ifname}: undoing what a daemon left behind that was killed");
        for error in revert(&left.steps, ifname, netlink, &journal) {
            log::warn!("{ifname}: {error}");
        }
    }
    journal.clear()?;
    Ok((journal, any))
}

fn execute(step: &Step, ifname: &str, dev: u32, netlink: &mut Netlink) -> Result<(), ApplyError> {
    match step {
        Step::Address { addr, prefix } => netlink.add_address(dev, *addr, *prefix)?,
        Step::TunnelAddress { addr, prefix, peer } => match peer {
            Some(peer) => netlink.add_peer_address(dev, *addr, *peer)?,
            None => netlink.add_address(dev, *addr, *prefix)?,
        },
        Step::Mtu { mtu } => netlink.set_mtu(dev, *mtu)?,
        Step::Up => netlink.set_up(dev)?,
        Step::Dns {
            resolver,
            servers,
            search,
            only,
        } => resolver.set(ifname, servers, search, only)?,
        Step::Route { .. }
        | Step::HostRoute { .. }
        | Step::TunnelRoute { .. }
        | Step::OuterRoute { .. }
        | Step::Unreachable { .. } => {
            if let Some(route) = step.route(Some(dev)) {
                netlink.add_route(&route)?;
            }
        }
        Step::Displace(saved) => absent_is_fine(netlink.delete_route(&saved.route()))?,
        Step::UnmarkedRule { .. } | Step::MainRule { .. } => {
            if let Some(rule) = rule(step) {
                netlink.add_rule(&rule)?;
            }
        }
        // Read-only in many containers, where the filter that looks at it is off as well.
        Step::Sysctl { key, value, .. } => {
            if let Err(error) = set_sysctl(key, value) {
                log::warn!("{ifname}: {error}; a strict rp_filter may drop the server's answers");
            }
        }
    }
    Ok(())
}

/// True when the host has already what the step would make; `others` are the steps of other
/// tunnels.
fn exists(step: &Step, others: &[Step], netlink: &mut Netlink) -> Result<bool, ApplyError> {
    Ok(match step {
        Step::HostRoute { dst, .. } => {
            // Those have metrics of their own, and go when their tunnel goes.
            let outer = others
                .iter()
                .filter(|step| matches!(step, Step::OuterRoute { .. }));
            let outer: Vec<Route> = outer.filter_map(|step| step.route(None)).collect();
            netlink.routes(Some(MAIN))?.iter().any(|route| {
                route.dst == *dst
                    && route.prefix == Family::of(*dst).bits()
                    && !outer.iter().any(|outer| same(outer, route))
            })
        }
        Step::UnmarkedRule { .. } | Step::MainRule { .. } => match rule(step) {
            None => false,
            Some(wanted) => netlink.rules(wanted.family)?.iter().any(|rule| {
                // Where there is a mark the kernel tells its mask too.
                let rule = Rule {
                    mask: None,
                    ..*rule
                };
                rule == wanted
            }),
        },
        Step::Sysctl { key, value, .. } => sysctl(key).as_ref() == Some(value),
        _ => false,
    })
}

/// Undoes the steps in reverse order, tries all, and gives what failed.
fn revert(
    steps: &[Step],
    ifname: &str,
    netlink: &mut Netlink,
    journal: &Journal,
) -> Vec<ApplyError> {
    let dev = netlink.index_of(ifname).ok();
    let alive = journal.others().into_iter().filter(|other| other.alive);
    let needed: Vec<Step> = alive.flat_map(|other| other.steps).collect();
    let undone = steps.iter().rev().map(|step| match step {
        // Another tunnel needs it, and has written it down.
        step if needed.iter().any(|other| other.is_shared_with(step)) => Ok(()),
        Step::Dns { resolver, .. } => Ok(resolver.unset(ifname)?),
        Step::TunnelAddress { addr, prefix, peer } => match (dev, peer) {
            (None, _) => Ok(()),
            (Some(dev), Some(peer)) => {
                absent_is_fine(netlink.remove_peer_address(dev, *addr, *peer))
            }
            (Some(dev), None) => absent_is_fine(netlink.remove_address(dev, *addr, *prefix)),
        },
        Step::TunnelRoute { .. } if dev.is_none() => Ok(()),
        Step::HostRoute { .. }
        | Step::TunnelRoute { .. }
        | Step::OuterRoute { .. }
        | Step::Unreachable { .. } => match step.route(dev) {
            Some(route) => absent_is_fine(netlink.delete_route(&route)),
            None => Ok(()),
        },
        Step::Displace(saved) => match netlink.add_route(&saved.route()) {
            // Somebody has made one since, and knows better what is right now.
            Err(error) if error.is_exists() => Ok(()),
            other => Ok(other?),
        },
        Step::UnmarkedRule { .. } | Step::MainRule { .. } => match rule(step) {
            Some(rule) => absent_is_fine(netlink.delete_rule(&rule)),
            None => Ok(()),
        },
        Step::Sysctl { key, before, .. } => set_sysctl(key, before),
        _ => Ok(()),
    });
    undone.filter_map(Result::err).collect()
}

/// The step may have been recorded and not done, or undone by the user.
pub(super) fn absent_is_fine(outcome: Result<(), NetlinkError>) -> Result<(), ApplyError> {
    match outcome {
        Err(error) if error.is_not_found() => Ok(()),
        other => Ok(other?),
    }
}

/// True for a TUN that was made to stay (`--mktun`, `ip tuntap add`).
fn is_persistent(ifname: &str) -> bool {
    const IFF_PERSIST: u32 = 0x800;
    let path = Path::new("/sys/class/net").join(ifname).join("tun_flags");
    let text = fs::read_to_string(path).unwrap_or_default();
    let flags = u32::from_str_radix(text.trim().trim_start_matches("0x"), 16);
    flags.is_ok_and(|flags| flags & IFF_PERSIST != 0)
}

/// The rule of a step that is about one.
fn rule(step: &Step) -> Option<Rule> {
    let family = |v6: bool| if v6 { Family::V6 } else { Family::V4 };
    match *step {
        Step::UnmarkedRule {
            v6,
            mark,
            table,
            priority,
        } => Some(Rule {
            priority: Some(priority),
            ..Rule::not_marked(family(v6), mark, table)
        }),
        Step::MainRule { v6, priority } => Some(Rule {
            priority: Some(priority),
            ..Rule::main_without_default(family(v6))
        }),
        _ => None,
    }
}

fn set_sysctl(key: &str, value: &str) -> Result<(), ApplyError> {
    fs::write(Path::new("/proc/sys").join(key), value).map_err(|error| ApplyError::Sysctl {
        key: key.to_owned(),
        error,
    })
}

mod change;

#[cfg(test)]
mod tests;
