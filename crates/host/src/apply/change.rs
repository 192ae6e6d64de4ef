//! From one plan to another while the tunnel is up.

use super::effect::revert;
use super::rivals::Rivals;
use super::{Applied, ApplyError};
use crate::plan::Plan;
use crate::step::Step;
use crate::system::System;

impl Applied {
    /// Does what `new` has and `old`, which is in force, has not, and then takes back what only `old` has. What both
    /// have is not touched.
    ///
    /// The MTU is left to [`MtuFollower`](crate::MtuFollower), which knows whether another program has set it.
    ///
    /// Returns what failed; everything has been tried.
    pub fn change(&mut self, old: &Plan, new: &Plan, system: &mut dyn System) -> Vec<ApplyError> {
        let dev = match system.index_of(&self.ifname) {
            Ok(dev) => dev,
            Err(error) => return vec![error.into()],
        };
        let mut errors = Vec::new();
        let mut rivals = Rivals::new(dev);
        self.forget_refused(new);
        for step in &new.steps {
            if old.steps.contains(step) || matches!(step, Step::Mtu { .. }) {
                continue;
            }
            if let Err(error) = self.step(step, &mut rivals, system) {
                self.refuse(step, error.to_string());
                errors.push(error);
            }
        }
        let has_dns = new.steps.iter().any(|it| matches!(it, Step::Dns { .. }));
        let masquerades = |it: &Step| matches!(it, Step::Masquerade { .. });
        let has_table = new.steps.iter().any(masquerades);
        for step in old.steps.iter().rev() {
            if new.steps.contains(step) {
                continue;
            }
            // New name servers have taken the place of the old ones, and so has a table.
            let dns = matches!(step, Step::Dns { .. });
            if (has_dns && dns) || (has_table && masquerades(step)) {
                self.done.retain(|done| done != step);
            } else {
                errors.extend(self.retire(step, system).err());
            }
        }
        errors.extend(self.keep(system).err());
        errors
    }

    /// Undoes one step. A setting of the whole host, which others may rely on, stays until the end.
    fn retire(&mut self, step: &Step, system: &mut dyn System) -> Result<(), ApplyError> {
        // A setting that was there before the tunnel is not the tunnel's to remove.
        let same = |done: &&Step| *done == step;
        let done = self.done.iter().find(same);
        let done = done.or_else(|| self.done.iter().find(|done| done.is_made_for(step)));
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
