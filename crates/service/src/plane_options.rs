//! Options of a data plane, from the settings and the machine.

use config::settings::{DataplaneSettings, Parallel};
use engine::TunnelOptions;
use std::num::NonZero;
use std::thread;

/// Maximum number of worker threads by default: more only reorder packets and wait.
const WORKERS_MAX: usize = 4;

/// The options from the settings, with the best values for this machine where the settings leave them open. `mtu` is
/// the interface's, in bytes; `backpressure`: see [`TunnelOptions::backpressure`].
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
            // With two cores, the second one does the kernel's work: see docs/benchmarks/notes.md.
            Parallel::Auto => cores > 2,
        },
        coalescing: settings.coalescing.wanted(),
        mtu,
        gso_max_segs: settings.gso_max_segs.map_or(usize::MAX, usize::from),
        backpressure,
    }
}
