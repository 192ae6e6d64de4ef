//! Byte counters of the uplinks, read from the data plane and kept over restarts.

use super::Executor;
use crate::floor::FloorFile;
use crate::lines::UsageFile;
use crate::now::Now;
use crate::openvpn::client::effect::Effect;
use crate::openvpn::client::event::Event;
use crate::openvpn::client::machine::Machine;
use std::path::Path;

impl<'a> Executor<'a> {
    /// Continues each uplink's monthly count from the file of the last run.
    pub(super) fn restore_lines(&mut self, machine: &mut Machine<'a>) {
        let context = self.context;
        // Opened now, because another `user` could not open it later.
        let (floor, time) = FloorFile::open();
        machine.restore_floor(time);
        self.floor = floor;
        let mut lines = context.config.lines.lines.iter();
        if lines.any(|line| line.cap.is_some()) {
            let file = context.file.as_deref().map(Path::new);
            let name = file
                .and_then(Path::file_stem)
                .and_then(|name| name.to_str());
            let user = context.config.service.user.as_deref();
            let (file, usage) = UsageFile::of(name.unwrap_or("openvpn"), user);
            machine.restore_lines(&usage);
            self.usage = file;
        }
    }

    /// Keeps the last byte counts at the end.
    pub(super) fn end_lines(&mut self, machine: &mut Machine<'a>) {
        for effect in machine.handle(Event::LinesEnd, Now::read(), self.plane()) {
            if let (Effect::KeepUsage(usage), Some(file)) = (effect, &mut self.usage) {
                file.write(&usage);
            }
        }
    }
}
