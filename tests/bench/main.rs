//! What the spine costs, as median, minimum and maximum of one run:
//!
//! ```sh
//! cargo build --release --locked && cargo bench -p scv-tests -- [NAME…]
//! ```
//!
//! Compare figures of one run only: a shared machine is not the same an hour later. Where a bound
//! is promised, the line says whether it holds.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a program for a developer's terminal")]

mod figures;
mod items;
mod rest;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    println!("{:<44} {:>10} {:>10} {:>10} {:>6}", "", "median", "min", "max", "n");
    for (name, item) in items::ALL {
        if wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str())) {
            item();
        }
    }
}
