//! What the costliest step of each kind takes in the component, by how many elections it
//! holds and how long their names are: in instructions, which are exact, and in time.
//!
//! `cargo bench -p incumbent-tests --features component --bench steps`

use incumbent_tests::load::{NAMES, SIZES, measure};

fn main() {
    for name in NAMES {
        for elections in SIZES {
            println!("{elections} elections, names of {name} bytes");
            for (kind, cost) in measure(elections, name) {
                println!(
                    "  {kind:<12} {:>10} instructions with {:>4} events, {:>7.2} ms; {} steps",
                    cost.fuel,
                    cost.events,
                    cost.time.as_secs_f64() * 1e3,
                    cost.steps
                );
            }
        }
    }
}
