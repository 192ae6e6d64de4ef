//! The changes that are in force for one interface.

use std::net::IpAddr;
use std::path::Path;

use netio::netlink::{Netlink, NetlinkError};

use super::ApplyError;
use super::effect::{execute, exists, revert};
use super::keep::Rounds;
use super::recovery::recovered;
use super::rivals::Rivals;
use crate::journal::{DIRECTORY, Directory, Journal};
use crate::plan::Plan;
use crate::step::Step;
use crate::system::System;
use crate::ways::{Way, with_free_metric};

/// The most sentences about refused steps that are kept: a server may push many routes.
pub(super) const REFUSED_MAX: usize = 32;

/// Opens the host.
pub(super) type Open = fn() -> Result<Box<dyn System>, NetlinkError>;

/// Opens the host of this process.
pub(super) fn open() -> Result<Box<dyn System>, NetlinkError> {
    Ok(Box::new(Netlink::open()?))
}

/// A plan that is in force. Dropping it undoes it too, but only [`Applied::undo`] says how that
/// went.
#[derive(Debug)]
pub struct Applied {
    pub(super) ifname: String,
    /// The steps that have been done and are to be undone, in order.
    pub(super) done: Vec<Step>,
    /// Steps that were taken back and are undone once more in the end: another tunnel may have needed them then, and left
    /// them to this one, whose journal goes on naming them.
    pub(super) retired: Vec<Step>,
    /// Settings that the host had already: they are put back where another program changes them, and stay in the end.
    pub(super) found: Vec<Step>,
    /// Sentences about refused steps, each with its step.
    pub(super) refused: Vec<(Step, String)>,
    /// Sentences about what other programs took away or lead past the tunnel, as of the last look.
    pub(super) lost: Vec<String>,
    pub(super) rounds: Rounds,
    /// Where the host's own routes led when they were last looked at.
    pub(super) seen: Vec<(IpAddr, Option<Way>)>,
    /// The interface stays when the process goes.
    persistent: bool,
    /// Gone once the steps have been undone.
    pub(super) journal: Option<Journal>,
    /// Opens the host that the steps are undone on.
    open: Open,
}

impl Applied {
    /// Applies `plan` to the interface, which must exist, in the namespace of `system`, which
    /// must be the process's own. The tunnel's sockets must have the plan's mark already.
    ///
    /// # Errors
    /// The first step that failed; the steps before it have been undone.
    pub fn apply(plan: &Plan, ifname: &str, system: &mut dyn System) -> Result<Self, ApplyError> {
        Self::apply_in(Path::new(DIRECTORY), open, plan, ifname, system)
    }

    /// Applies a plan as [`Applied::apply`] does, with the journal in a directory, and a host that `open` opens at the
    /// end.
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
        // Dropped when it fails, and with that undone.
        applied.add(plan, system)?;
        Ok(applied)
    }

    /// Applies a further plan to the same interface: what has to wait until a script has run.
    ///
    /// # Errors
    /// The first step that failed; everything has been undone, the plans before it too.
    pub fn add(&mut self, plan: &Plan, system: &mut dyn System) -> Result<(), ApplyError> {
        let outcome = self.try_add(plan, system);
        if outcome.is_err() {
            for undo in self.take_back(system) {
                log::warn!("{}: {undo}", self.ifname);
            }
        }
        outcome
    }

    /// Changes from one plan to another that is in part the same: steps that only `before` has are
    /// undone, then those that only `after` has are done.
    ///
    /// # Errors
    /// The first step that failed; what was in force and is in both plans still is.
    pub fn exchange(
        &mut self,
        before: &Plan,
        after: &Plan,
        system: &mut dyn System,
    ) -> Result<(), ApplyError> {
        let has = |plan: &Plan, made: &Step| plan.steps.iter().any(|step| made.is_made_for(step));
        let gone = |step: &Step| has(before, step) && !has(after, step);
        let (gone, kept) = std::mem::take(&mut self.done).into_iter().partition(gone);
        self.done = kept;
        self.forget_refused(after);
        if let Some(journal) = &self.journal {
            let gone: Vec<Step> = gone;
            for error in revert(&gone, &self.ifname, system, journal) {
                log::warn!("{}: {error}", self.ifname);
            }
        }
        let new = |step: &&Step| !before.steps.contains(step);
        let plan = Plan {
            steps: after.steps.iter().filter(new).cloned().collect(),
            ..after.clone()
        };
        self.try_add(&plan, system)
    }

    fn try_add(&mut self, plan: &Plan, system: &mut dyn System) -> Result<(), ApplyError> {
        let dev = system.index_of(&self.ifname)?;
        if let Some(journal) = &mut self.journal {
            journal.set_interface(dev);
        }
        let mut rivals = Rivals::new(dev);
        for step in &plan.steps {
            self.step(step, &mut rivals, system)?;
        }
        self.keep(system)?;
        self.look(system)
    }

    /// Sentences about settings that the tunnel asked for and the host does not have.
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

    /// Forgets refused steps that the next plan has not.
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
        // No other tunnel decides about the same step meanwhile.
        let _directory = match &self.journal {
            Some(journal) if step.may_be_shared() => Some(journal.directory()?),
            _ => None,
        };
        // A step that goes with the interface is no other tunnel's, whose journals need not be read for it.
        if step.outlives_interface() {
            let others = self.others_steps();
            if exists(step, system)? {
                // A step that another tunnel made goes with the last one that needs it. A setting that was there before
                // is not the tunnel's to remove later.
                if let Some(shared) = others.into_iter().find(|other| other.is_shared_with(step)) {
                    self.record(&shared)?;
                    self.done.push(shared);
                } else if matches!(step, Step::Sysctl { .. }) {
                    self.found.push(step.clone());
                }
                log::debug!("{}: there already: {step:?}", self.ifname);
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
                    // The setting that is there instead has another origin, and must not be undone.
                    if let (Some(mark), Some(journal)) = (written, &mut self.journal) {
                        journal.retract(mark)?;
                    }
                } else if remembered {
                    // It may have been done in part.
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

    /// Indices of the interfaces of [`Self::others`].
    pub(super) fn other_devices(&self, system: &mut dyn System) -> Vec<u32> {
        let names = self.others().0.into_iter();
        names.filter_map(|it| system.index_of(&it).ok()).collect()
    }

    fn others_steps(&self) -> Vec<Step> {
        self.others().1
    }

    /// Undoes everything, in reverse order. The MTU stays, and the interface stays up.
    ///
    /// # Errors
    /// The steps that could not be undone; everything has been tried.
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

    /// Undoes everything that `other` has done, and goes on with its journal: a process that has
    /// dropped its privileges could not open another. What cannot be undone is logged.
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
        // Until the journal is gone too: another tunnel's end must not count on this one's.
        let _directory = journal.directory().inspect_err(|e| log::warn!("{e}"));
        let mut all = std::mem::take(&mut self.retired);
        all.append(&mut self.done);
        let mut errors = revert(&all, &self.ifname, system, &journal);
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
