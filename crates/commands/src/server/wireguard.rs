//! The file of a WireGuard server.

use super::{InitError, Plan, place};
use config::types::Key32;
use crypto::x25519::PrivateKey;
use std::path::PathBuf;
use zeroize::Zeroizing;

/// Writes the file. Returns where it is.
pub(super) fn write(plan: &Plan<'_>) -> Result<PathBuf, InitError> {
    let key = Key32::new(*PrivateKey::generate().as_bytes());
    let addresses = plan.addresses();
    let addresses: Vec<String> = addresses
        .iter()
        .map(|(addr, bits)| format!("{addr}/{bits}"))
        .collect();
    let text = Zeroizing::new(format!(
        "# A WireGuard server. `millrace up {name}` runs it, and so does wg-quick, without what [Server] says.\n\
         # `millrace peer add` lets clients in and `millrace peer revoke` takes them out again, also while it runs.\n\
         [Interface]\n\
         PrivateKey = {}\n\
         Address = {}\n\
         ListenPort = {}\n\
         {}",
        key.to_base64().as_str(),
        addresses.join(", "),
        plan.port,
        plan.home.to_comments(),
        name = plan.name,
    ));
    let path = plan.directory.join(format!("{}.conf", plan.name));
    place::write_new(&path, &text)?;
    Ok(path)
}
