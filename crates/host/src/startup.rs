//! The end of a program's start.

/// Set-up is over: lets go of the code that only set-up needed, some megabytes in RAM. To be called once the tunnel is up.
pub fn is_over() {
    if let Err(error) = netio::memory::let_go_of_code() {
        log::debug!("the code of the start stays in memory: {error}");
    }
}
