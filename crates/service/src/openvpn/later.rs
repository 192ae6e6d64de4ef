//! Configurations that were read while a server ran.

use config::openvpn::OpenVpn;
use std::cell::OnceCell;

/// They live as long as the server does: what it does for its clients refers to the one that was there when it began.
#[derive(Default)]
pub(super) struct Later(OnceCell<Box<(OpenVpn, Self)>>);

impl Later {
    /// Keeps one more.
    pub(super) fn keep(&self, config: OpenVpn) -> &OpenVpn {
        let mut last = self;
        while let Some(next) = last.0.get() {
            last = &next.1;
        }
        &last.0.get_or_init(|| Box::new((config, Self::default()))).0
    }
}
