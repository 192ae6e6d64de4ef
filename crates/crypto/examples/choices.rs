//! Shows the choices of the measurement at the start on this machine, and how long it takes.

use std::time::Instant;

use crypto::select::{self, Algorithm};

fn main() {
    for algorithm in Algorithm::ALL {
        let from = Instant::now();
        let choice = select::chosen(algorithm);
        let taken = from.elapsed();
        println!(
            "{:18} {:8} {} for batches, {} for few packets; {} us among {:?}",
            algorithm.name(),
            choice.backend,
            choice.many,
            choice.few,
            taken.as_micros(),
            select::candidates(algorithm)
        );
    }
}
