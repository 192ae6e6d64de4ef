//! OpenVPN programs: the stock one and Millrace, behind one trait and with the same configuration files.
//!
//! Tests generate a [`Pki`] and its key files ([`StaticKey`], [`V2Keys`]), which vanish with their values. A
//! [`Setup`] describes a tunnel and writes the configuration of either end. An [`OpenVpn`] program starts from such a
//! file in a host and becomes a [`RunningOpenVpn`], with a log, a status file and a management socket.

mod config_file;
mod directory;
mod key_file;
mod management;
mod old;
mod packaged;
mod pki;
mod program;
mod running;
mod setup;

pub use config_file::ConfigFile;
pub use crypto::{Cipher, Digest};
pub use directory::Directory;
pub use key_file::{StaticKey, V2Keys};
pub use management::Management;
pub use old::{OldClient, OldServer};
pub use packaged::PackagedOpenVpn;
pub use pki::{Identity, KeyKind, Pki, Role};
pub use program::{MillraceOpenVpn, OpenVpn, StockOpenVpn};
pub use running::{READY_LINE, RunningOpenVpn};
pub use setup::{Credentials, Framing, RARE_DIGESTS, Setup, Transport, Wrap};
