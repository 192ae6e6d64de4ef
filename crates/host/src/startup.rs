//! Ends a program's start.

/// Releases the code that only set-up needed, some megabytes of RAM. Call it once the tunnel is up.
pub fn is_over() {
    if let Err(error) = netio::memory::let_go_of_code() {
        log::debug!("the code of the start stays in memory: {error}");
    }
}
