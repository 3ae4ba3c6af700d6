//! Samples of one quantity, and the line that shows them.

use std::time::Duration;

/// Samples, in one unit.
pub(crate) struct Figures {
    what: String,
    unit: &'static str,
    samples: Vec<f64>,
}

impl Figures {
    /// No samples yet.
    pub(crate) fn new(what: &str, unit: &'static str) -> Self {
        Self { what: what.to_owned(), unit, samples: Vec::new() }
    }

    /// One more.
    pub(crate) fn add(&mut self, sample: f64) {
        self.samples.push(sample);
    }

    /// One more, in milliseconds.
    pub(crate) fn took(&mut self, sample: Duration) {
        self.add(sample.as_secs_f64() * 1000.0);
    }

    /// The middle one.
    pub(crate) fn median(&self) -> f64 {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// Prints the line.
    pub(crate) fn show(&self) {
        let least = self.samples.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.samples.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let what = format!("{}, {}", self.what, self.unit);
        println!("{what:<44} {:>10.3} {least:>10.3} {most:>10.3} {:>6}", self.median(), self.samples.len());
    }
}

/// Says whether a promise holds in this run.
pub(crate) fn promise(what: &str, value: f64, limit: f64) {
    let verdict = if value <= limit { "holds" } else { "BROKEN" };
    println!("    {what}: {value:.3}, promised at most {limit} ({verdict})");
}
