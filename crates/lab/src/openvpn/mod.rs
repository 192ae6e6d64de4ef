//! OpenVPN programs: the stock one and Millrace, behind one trait and with the same configuration files.
//!
//! A [`Pki`] and the key files beside it ([`StaticKey`], [`V2Keys`]) are made when they are needed and are
//! gone with their value. A [`Setup`] says how a tunnel shall be, and writes the file of either end;
//! an [`OpenVpn`] program starts from such a file in a host, and is a [`RunningOpenVpn`] from then on,
//! which knows its log, its status file and its management socket.

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
