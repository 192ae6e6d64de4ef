//! What a server or client decides and tells apart from the protocol: addresses, what is pushed
//! to whom, who may come in, scripts, status files, the management port and the log.
//!
//! Nearly all of it is pure; what runs a program or checks a password does so on a thread of its
//! own ([`background`]), so that neither the control loop nor the data plane ever waits.

#[cfg(feature = "server")]
pub(super) mod auth_script;
#[cfg(feature = "server")]
pub(super) mod background;
#[cfg(feature = "server")]
pub(super) mod client_variables;
#[cfg(feature = "server")]
pub(super) mod clients;
#[cfg(feature = "server")]
pub(super) mod connect_script;
pub(super) mod environment;
#[cfg(feature = "server")]
pub(super) mod htpasswd;
pub(super) mod log_lines;
pub(super) mod logger;
#[cfg(feature = "server")]
mod md5_crypt;
pub(super) mod names;
pub(super) mod periodic_file;
#[cfg(feature = "server")]
pub(super) mod persist;
#[cfg(feature = "server")]
pub(super) mod pool;
pub(super) mod route_variables;
pub(super) mod scripts;
#[cfg(feature = "server")]
pub(super) mod server_status;
pub(super) mod status_file;
pub(super) mod timestamp;
pub(super) mod variables;
