//! The changes that are in force for one interface.

use std::net::IpAddr;
use std::path::Path;

use netio::netlink::{Netlink, NetlinkError};

use super::ApplyError;
use super::effect::{execute, exists, revert};
use super::keep::{REFUSED_MAX, Rounds};
use super::recovery::recovered;
use super::rivals::Rivals;
use crate::journal::{DIRECTORY, Directory, Journal};
#[cfg(feature = "policy")]
use crate::lan;
use crate::plan::Plan;
use crate::step::Step;
use crate::system::System;
use crate::ways::{Way, with_free_metric};

/// Opens the host.
pub(super) type Open = fn() -> Result<Box<dyn System>, NetlinkError>;

/// Opens the host of this process.
pub(super) fn open() -> Result<Box<dyn System>, NetlinkError> {
    Ok(Box::new(Netlink::open()?))
}

/// A plan that is in force. Dropping it undoes it too, but only [`Applied::undo`] reports errors.
#[derive(Debug)]
pub struct Applied {
    pub(super) ifname: String,
    /// The steps that were done and have to be undone, in order.
    pub(super) done: Vec<Step>,
    /// Steps that were undone and are undone once more at the end. Another tunnel may have needed them meanwhile and
    /// relied on this one, whose journal still lists them.
    pub(super) retired: Vec<Step>,
    /// Settings that the host had already. The tunnel restores them when another program changes them, and leaves them
    /// at the end.
    pub(super) found: Vec<Step>,
    /// Messages about refused steps, each with its step.
    pub(super) refused: Vec<(Step, String)>,
    /// Messages about steps that other programs removed or bypass, from the last check.
    pub(super) lost: Vec<String>,
    pub(super) rounds: Rounds,
    /// Next hops of the host's own routes for which the routes past the tunnel were made, or at the last check.
    pub(super) seen: Vec<(IpAddr, Option<Way>)>,
    /// Whether the interface stays when the process ends.
    persistent: bool,
    /// The journal; `None` once the steps have been undone.
    pub(super) journal: Option<Journal>,
    /// Opens the host on which the steps are undone.
    open: Open,
}

impl Applied {
    /// Whether the host asks the tunnel's name servers.
    pub(crate) fn sets_dns(&self) -> bool {
        self.done.iter().any(|it| matches!(it, Step::Dns { .. }))
    }

    /// Applies `plan` to the interface, which must exist. The namespace of `system` must be the process's own. The
    /// tunnel's sockets must have the plan's mark already.
    ///
    /// # Errors
    /// The first step that failed; the steps before it have been undone.
    pub fn apply(plan: &Plan, ifname: &str, system: &mut dyn System) -> Result<Self, ApplyError> {
        Self::apply_in(Path::new(DIRECTORY), open, plan, ifname, system)
    }

    /// Applies a plan as [`Applied::apply`] does, with the journal in `directory`. `open` opens the host again for
    /// undoing.
    pub(super) fn apply_in(
        directory: &Path,
        open: Open,
        plan: &Plan,
        ifname: &str,
        system: &mut dyn System,
    ) -> Result<Self, ApplyError> {
        let mut applied = Self {
            ifname: ifname.to_owned(),
            done: Vec::new(),
            retired: Vec::new(),
            found: Vec::new(),
            refused: Vec::new(),
            lost: Vec::new(),
            rounds: Rounds::default(),
            seen: Vec::new(),
            persistent: system.is_persistent(ifname),
            journal: Some(recovered(&Directory::lock(directory)?, ifname, system)?.0),
            open,
        };
        // An error drops `applied`, which undoes its steps.
        applied.add(plan, system)?;
        Ok(applied)
    }

    /// Applies a further plan to the same interface, such as steps that wait for a script.
    ///
    /// # Errors
    /// The first step that failed; all steps have been undone, those of earlier plans too.
    pub fn add(&mut self, plan: &Plan, system: &mut dyn System) -> Result<(), ApplyError> {
        let outcome = self.try_add(plan, system);
        if outcome.is_err() {
            for undo in self.take_back(system) {
                log::warn!("{}: {undo}", self.ifname);
            }
        }
        #[cfg(feature = "policy")]
        if outcome.is_ok() {
            self.warn_of_lan(system);
        }
        outcome
    }

    /// Warns of devices of the LAN that get no answers through a full tunnel.
    #[cfg(feature = "policy")]
    fn warn_of_lan(&self, system: &mut dyn System) {
        let index = system.index_of(&self.ifname).ok();
        let way = system.route_get(lan::INTERNET, 0).ok();
        if way.is_none_or(|it| Some(it.dev) != index) {
            return;
        }
        let lans = lan::unmasqueraded(&self.ifname);
        if !lans.is_empty() {
            log::warn!("{}", lan::words_about(&lans, &self.ifname).join("; "));
        }
    }

    /// Changes from one plan to another that shares steps with it. Undoes the steps that only `before` has, then does
    /// the steps that only `after` has; closes networks first.
    ///
    /// # Errors
    /// The first step that failed; steps that both plans share stay in force.
    pub fn exchange(
        &mut self,
        before: &Plan,
        after: &Plan,
        system: &mut dyn System,
    ) -> Result<(), ApplyError> {
        let new = |step: &&Step| !before.steps.contains(step);
        // Networks are closed before the routes to them go.
        let mut rivals = Rivals::new(system.index_of(&self.ifname)?);
        let is_closed = |step: &&Step| step.closed().is_some();
        for step in after.steps.iter().filter(new).filter(is_closed) {
            self.step(step, &mut rivals, system)?;
        }
        let has = |plan: &Plan, made: &Step| plan.steps.iter().any(|step| made.is_made_for(step));
        // A refused table leaves that of an earlier plan.
        let had_table = before.steps.iter().any(Step::masquerades);
        let was = |step: &Step| has(before, step) || (had_table && step.masquerades());
        let gone = |step: &Step| was(step) && !has(after, step);
        let (mut gone, kept): (Vec<Step>, _) =
            std::mem::take(&mut self.done).into_iter().partition(gone);
        self.done = kept;
        self.forget_refused(after);
        // A new nftables table replaces the old one.
        let mut tables = Vec::new();
        if after.steps.iter().any(Step::masquerades) {
            (tables, gone) = gone.into_iter().partition(Step::masquerades);
        }
        if let Some(journal) = &self.journal {
            for error in revert(&gone, &self.ifname, system, journal) {
                log::warn!("{}: {error}", self.ifname);
            }
        }
        let rest = |step: &&Step| new(step) && !is_closed(step);
        let plan = Plan {
            steps: after.steps.iter().filter(rest).cloned().collect(),
            ..after.clone()
        };
        let outcome = self.try_add(&plan, system);
        // The kernel refused the new table, so the old one is still there.
        if !self.done.iter().any(Step::masquerades) {
            self.done.append(&mut tables);
        }
        outcome
    }

    fn try_add(&mut self, plan: &Plan, system: &mut dyn System) -> Result<(), ApplyError> {
        let dev = system.index_of(&self.ifname)?;
        if let Some(journal) = &mut self.journal {
            journal.set_interface(dev);
        }
        let past: Vec<IpAddr> = plan.steps.iter().filter_map(Step::towards).collect();
        let ways = self.ways(&past, system)?;
        let mut rivals = Rivals::new(dev);
        for step in &plan.steps {
            self.step(step, &mut rivals, system)?;
        }
        self.saw(ways);
        self.keep(system)
    }

    /// Messages about settings that the tunnel requested and the host refused.
    pub fn refused(&self) -> impl Iterator<Item = &str> {
        let refused = self.refused.iter().map(|(_, why)| why);
        refused.chain(&self.lost).map(String::as_str)
    }

    pub(super) fn refuse(&mut self, step: &Step, why: String) {
        if self.refused.len() > REFUSED_MAX || self.refused().any(|known| known == why) {
            return;
        }
        let why = match self.refused.len() {
            REFUSED_MAX => "further refused steps are not listed".to_owned(),
            _ => why,
        };
        log::error!("{}: {why}", self.ifname);
        self.refused.push((step.clone(), why));
    }

    /// Forgets refused steps that the next plan does not have.
    pub(super) fn forget_refused(&mut self, next: &Plan) {
        let stays = |refused: &Step| next.steps.iter().any(|step| refused.is_made_for(step));
        self.refused.retain(|(step, _)| stays(step));
    }

    pub(super) fn step(
        &mut self,
        step: &Step,
        rivals: &mut Rivals,
        system: &mut dyn System,
    ) -> Result<(), ApplyError> {
        // The lock keeps other tunnels from deciding about the same step meanwhile.
        let _directory = match &self.journal {
            Some(journal) if step.may_be_shared() => Some(journal.directory()?),
            _ => None,
        };
        // No other tunnel shares a step that goes with the interface, so no other journal is read for it.
        if step.outlives_interface() {
            let others = self.others_steps();
            if exists(step, system)? {
                // The last tunnel that needs a shared step undoes it. A setting that was there before the tunnel stays.
                if let Some(shared) = others.into_iter().find(|other| other.is_shared_with(step)) {
                    self.record(&shared)?;
                    self.done.push(shared);
                } else if matches!(step, Step::Sysctl { .. }) {
                    self.found.push(step.clone());
                }
                log::debug!("{}: exists already: {step:?}", self.ifname);
                return Ok(());
            }
        }
        let step = with_free_metric(step, system)?;
        let step = rivals.win(step, system)?;
        if let Some(why) = rivals.shadow(&step, system)? {
            if step.must_win() {
                return Err(ApplyError::Shadowed(why));
            }
            self.refuse(&step, why);
        }
        let written =
            if step.outlives_interface() || (step.belongs_to_interface() && self.persistent) {
                Some(self.record(&step)?)
            } else {
                None
            };
        let remembered = written.is_some() || step.belongs_to_interface();
        match execute(&step, &self.ifname, rivals.dev, system) {
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
                self.refuse(&step, format!("{error}: {}", step.without()));
                Ok(())
            }
            Err(error) => {
                if error.is_refusal() {
                    // The host's existing object has another origin and must stay.
                    if let (Some(mark), Some(journal)) = (written, &mut self.journal) {
                        journal.retract(mark)?;
                    }
                } else if remembered {
                    // The failed step may have been done in part.
                    self.done.push(step);
                }
                Err(error)
            }
        }
    }

    /// Records that a step is about to be done. The returned mark removes the record.
    pub(super) fn record(&mut self, step: &Step) -> Result<u64, ApplyError> {
        match &mut self.journal {
            Some(journal) => Ok(journal.record(step)?),
            None => Ok(0),
        }
    }

    /// Removes everything recorded since the mark.
    pub(super) fn retract(&mut self, mark: u64) -> Result<(), ApplyError> {
        match &mut self.journal {
            Some(journal) => Ok(journal.retract(mark)?),
            None => Ok(()),
        }
    }

    /// The interfaces of the other tunnels that are up or were not undone, and their steps on this host.
    pub(super) fn others(&self) -> (Vec<String>, Vec<Step>) {
        let others = self.journal.as_ref().map(Journal::others);
        let others = others.unwrap_or_default().into_iter();
        let (names, steps): (Vec<String>, Vec<Vec<Step>>) =
            others.map(|other| (other.ifname, other.steps)).unzip();
        (names, steps.concat())
    }

    /// Indices of the interfaces of [`Self::others`].
    pub(super) fn other_devices(&self, system: &mut dyn System) -> Vec<u32> {
        let names = self.others().0.into_iter();
        names.filter_map(|it| system.index_of(&it).ok()).collect()
    }

    fn others_steps(&self) -> Vec<Step> {
        self.others().1
    }

    /// Undoes all steps, in reverse order. The MTU stays, and the interface stays up.
    ///
    /// # Errors
    /// The steps that could not be undone; all have been tried.
    pub fn undo(mut self) -> Result<(), Vec<ApplyError>> {
        let errors = match (self.open)() {
            Ok(mut system) => self.take_back(&mut *system),
            Err(error) => vec![error.into()],
        };
        if errors.is_empty() {
            Ok(())
        } else {
            Err(errors)
        }
    }

    /// Leaves all steps in force, for the program that this process executes next: it undoes them once it has its own
    /// plan, as after a kill.
    #[cfg(feature = "handover")]
    pub fn leave(mut self) {
        self.journal = None;
    }

    /// Undoes all steps of `other` and continues with its journal: a process without privileges could not open another.
    /// Logs the steps that cannot be undone.
    pub fn take_over(mut other: Self, system: &mut dyn System) -> Self {
        if let Some(journal) = &mut other.journal {
            let directory = journal.directory().inspect_err(|e| log::warn!("{e}"));
            let all = [&other.retired[..], &other.done].concat();
            let mut errors = revert(&all, &other.ifname, system, journal);
            errors.extend(journal.clear().err().map(ApplyError::from));
            drop(directory);
            for error in errors {
                log::warn!("{}: {error}", other.ifname);
            }
        }
        other.done.clear();
        other.retired.clear();
        other.found.clear();
        other.refused.clear();
        other.lost.clear();
        other.seen.clear();
        other
    }

    pub(super) fn take_back(&mut self, system: &mut dyn System) -> Vec<ApplyError> {
        let Some(journal) = self.journal.take() else {
            return Vec::new();
        };
        // Locked until the journal is gone too: another tunnel that ends must not rely on this one's record.
        let _directory = journal.directory().inspect_err(|e| log::warn!("{e}"));
        let mut all = std::mem::take(&mut self.retired);
        all.append(&mut self.done);
        let mut errors = revert(&all, &self.ifname, system, &journal);
        // A journal of steps that failed would only be retried in vain.
        errors.extend(journal.remove().err().map(ApplyError::from));
        errors
    }
}

impl Drop for Applied {
    fn drop(&mut self) {
        if self.journal.is_none() {
            return;
        }
        match (self.open)() {
            Ok(mut system) => {
                for error in self.take_back(&mut *system) {
                    log::warn!("{}: {error}", self.ifname);
                }
            }
            Err(error) => log::warn!("{}: {error}", self.ifname),
        }
    }
}
