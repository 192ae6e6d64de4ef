//! Policy of a server or client, apart from the protocol: addresses, pushed options, access, scripts, status files and
//! the log.
//!
//! Most of it is pure code. Scripts and password checks run on their own threads ([`background`]), so the control loop
//! and the data plane never wait.

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
