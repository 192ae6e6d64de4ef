//! Runs a client: one server at a time, reconnecting until told to stop.
//!
//! [`machine`] decides: it takes an [`event`] and calls its [`host`]. [`executor`] is that host and waits for the next
//! event; [`steps`] makes calls wait for scripts.

mod event;
mod executor;
mod host;
mod logins;
mod machine;
mod steps;

#[cfg(test)]
mod tests;

use super::ready::Ready;
use super::{Context, Ended};
use config::openvpn::Prompted;
use executor::Executor;
use machine::{Machine, Parts};
use openvpn_host::hooks::Hooks;
use openvpn_host::management::QueryKind;
use openvpn_host::revocation::RevocationFile;
use openvpn_host::{secrets, setup};
use std::error::Error;
use std::sync::Arc;
use std::time::SystemTime;

/// Counter of packets from addresses other than the server's.
const WRONG_ADDRESS: &str = "wrong_address";

/// Runs a client until it is told to stop.
pub(super) fn run(context: &Context) -> Ended {
    match start(context) {
        Ok(mut executor) => {
            // The parent's time limit starts here, after the passphrase was typed.
            context.begin_waiting();
            executor.run()
        }
        Err(error) => {
            context.fatal(&*error);
            Ended::Exit(1)
        }
    }
}

fn start(context: &Context) -> Result<Executor<'_>, Box<dyn Error>> {
    let config = &context.config;
    // Created before the list is read, so that a change in between is noticed later.
    let crl = RevocationFile::new(config);
    let Ready { mut tls, wraps, .. } = ready(context)?;
    let hooks = Hooks::new(config, context.file.as_deref(), SystemTime::now());
    if config.scripts.tls_verify.is_some() {
        tls.ask_for_verdicts();
    }
    for warning in tls.warnings() {
        log::warn!("WARNING: {warning}");
    }
    let tls = Arc::new(tls);
    setup::prepare(&tls);
    let machine = Machine::new(Parts {
        config,
        hooks,
        tls: Arc::clone(&tls),
        wraps,
        no_dns: context.no_dns,
        auth_retry: context.auth_retry.get(),
        mover: &context.mover,
        given_up: u8::from(!context.is_stock),
    });
    Executor::new(context, machine, tls, crl)
}

/// Returns the keys and settings for the start; asks for a passphrase if the key needs one.
pub(super) fn ready(context: &Context) -> Result<Ready, Box<dyn Error>> {
    let config = &context.config;
    let mut ready = Ready::read(config, context.file.as_deref(), || {
        let file = matches!(config.tls.askpass, Some(Prompted::From(_)));
        let asked = match file {
            true => None,
            false => context.ask("Private Key", QueryKind::Password),
        };
        Ok(match asked {
            Some(answer) => answer?.text,
            None => secrets::passphrase(config.tls.askpass.as_ref(), config)?,
        })
    })?;
    ready.tls.set_earliest(lines::floor::earliest());
    Ok(ready)
}
