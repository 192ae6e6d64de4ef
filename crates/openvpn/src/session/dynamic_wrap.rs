//! The wrap of a session's renegotiations, where it has one of its own.

use zeroize::Zeroizing;

use crate::keyfile::StaticKey;
use crate::role::Role;
use crate::wrap::Wrap;

/// Built from its key when the first packet needs it. The expanded key takes seven times the memory, and most sessions
/// of a server wait an hour for their renegotiation.
pub(super) struct DynamicWrap {
    exported: Zeroizing<[u8; StaticKey::LEN]>,
    made: Option<Wrap>,
}

impl DynamicWrap {
    pub(super) const fn new(exported: Zeroizing<[u8; StaticKey::LEN]>) -> Self {
        Self {
            exported,
            made: None,
        }
    }

    /// The wrap. `first` is that of the first negotiation.
    pub(super) fn wrap(&mut self, first: &Wrap, role: Role) -> &mut Wrap {
        let exported = &self.exported;
        self.made
            .get_or_insert_with(|| first.dynamic(exported, role))
    }
}
