//! Configurations that a server has read since its start.

use config::openvpn::OpenVpn;
use std::cell::OnceCell;

/// Each lives as long as the server: work for a client refers to the configuration with which it began.
#[derive(Default)]
pub(super) struct Later(OnceCell<Box<(OpenVpn, Self)>>);

impl Later {
    /// Keeps one more configuration.
    pub(super) fn keep(&self, config: OpenVpn) -> &OpenVpn {
        let mut last = self;
        while let Some(next) = last.0.get() {
            last = &next.1;
        }
        &last.0.get_or_init(|| Box::new((config, Self::default()))).0
    }
}
