//! How a data plane is run, by the settings and the machine.

use config::settings::{DataplaneSettings, Parallel};
use engine::TunnelOptions;
use std::num::NonZero;
use std::thread;

/// Most threads chosen without being asked: more only reorder and wait.
const WORKERS_MAX: usize = 4;

/// The options of the settings, and the best ones for this machine where the settings leave them open. `mtu` is the
/// interface's, in bytes; `backpressure`: see [`TunnelOptions::backpressure`].
pub(crate) fn plane_options(
    settings: &DataplaneSettings,
    mtu: usize,
    backpressure: bool,
) -> TunnelOptions {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    TunnelOptions {
        workers: settings.workers.unwrap_or_else(|| cores.min(WORKERS_MAX)),
        parallel: match settings.parallel {
            Parallel::On => true,
            Parallel::Off => false,
            // On two cores the other one has the kernel's work to do: see docs/benchmarks/notes.md.
            Parallel::Auto => cores > 2,
        },
        coalescing: settings.coalescing.wanted(),
        mtu,
        gso_max_segs: settings.gso_max_segs.map_or(usize::MAX, usize::from),
        backpressure,
    }
}
