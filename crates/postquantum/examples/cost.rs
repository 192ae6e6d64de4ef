//! Measures the work of an exchange, and what the renewals of 10,000 peers cost an office's server:
//! `cargo run --release -p millrace-postquantum --example cost`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crypto::mlkem::{DecapsulationKey, encapsulate};

/// Operations that are measured.
const COUNT: u32 = 2000;
const PEERS: f64 = 10_000.0;
/// Seconds between the exchanges with a peer.
const PERIOD: f64 = 600.0;

fn mean<T>(mut operation: impl FnMut() -> T) -> Duration {
    let start = Instant::now();
    for _ in 0..COUNT {
        black_box(operation());
    }
    start.elapsed() / COUNT
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (private, public) = DecapsulationKey::generate()?;
    let (ciphertext, _) = encapsulate(&public)?;
    let generate = mean(DecapsulationKey::generate);
    let encapsulation = mean(|| encapsulate(&public));
    let decapsulation = mean(|| private.decapsulate(&ciphertext));
    println!(
        "ML-KEM-768: generate {generate:?}, encapsulate {encapsulation:?}, decapsulate {decapsulation:?}"
    );
    for (role, cost) in [
        ("answers", encapsulation),
        ("offers", generate + decapsulation),
    ] {
        let share = cost.as_secs_f64() * PEERS / PERIOD * 100.0;
        println!("a server that {role}: {share:.3} % of one core for {PEERS} peers");
    }
    Ok(())
}
