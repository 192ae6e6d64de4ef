//! Status while there is no session: before the first one, and between two sessions.

use super::monitoring::{Monitored, Status};
use super::status_file::ClientStatus;
use crate::status::Status as Document;

/// Stands in for a client or server that has no session.
pub(super) struct Idle;

impl Monitored for Idle {
    fn status(&self) -> Status {
        Status::Client(ClientStatus::default())
    }

    fn document(&self) -> Document {
        Document {
            state: Some("connecting".to_owned()),
            ..Document::default()
        }
    }
}
