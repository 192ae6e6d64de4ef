//! What a server or client decides and tells apart from the protocol: addresses, what is pushed
//! to whom, who may come in, scripts, status files, the management port and the log.
//!
//! Nearly all of it is pure; what runs a program or checks a password does so on a thread of its
//! own ([`background`]), so that neither the control loop nor the data plane ever waits.

#[cfg(feature = "server")]
pub(crate) mod auth_script;
pub(crate) mod background;
#[cfg(feature = "server")]
pub(crate) mod clients;
#[cfg(feature = "server")]
pub(crate) mod connect_script;
pub(crate) mod environment;
#[cfg(feature = "server")]
pub(crate) mod htpasswd;
pub(crate) mod log_lines;
pub(crate) mod logger;
pub(crate) mod management;
#[cfg(feature = "server")]
mod md5_crypt;
pub(crate) mod names;
pub(crate) mod periodic_file;
#[cfg(feature = "server")]
pub(crate) mod persist;
#[cfg(feature = "server")]
pub(crate) mod pool;
pub(crate) mod scripts;
pub(crate) mod status_file;
pub(crate) mod timestamp;
pub(crate) mod variables;
