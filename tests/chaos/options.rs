//! The command line.

/// What a run is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// No new round begins after so many seconds.
    pub seconds: u64,
    /// At most so many faults.
    pub steps: u64,
    pub seed: u64,
    pub users: usize,
    /// In a real systemd instead of under the guard.
    pub systemd: bool,
}

const USAGE: &str = "usage: chaos [--seconds N] [--steps N] [--seed N] [--users N] [--systemd]";

impl Options {
    /// Reads them; without a seed one is taken by chance.
    pub(crate) fn read(arguments: impl IntoIterator<Item = String>) -> Result<Self, &'static str> {
        let seed = fastrand::u64(..1_000_000);
        let mut options = Self { seconds: 60, steps: u64::MAX, seed, users: 12, systemd: false };
        let mut arguments = arguments.into_iter();
        while let Some(name) = arguments.next() {
            if name == "--systemd" {
                options.systemd = true;
                continue;
            }
            let value: u64 = arguments.next().and_then(|value| value.parse().ok()).ok_or(USAGE)?;
            match name.as_str() {
                "--seconds" => options.seconds = value,
                "--steps" => options.steps = value,
                "--seed" => options.seed = value,
                "--users" => options.users = usize::try_from(value).map_err(|_| USAGE)?,
                _ => return Err(USAGE),
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_others_are_refused() {
        let read = |words: &str| Options::read(words.split_whitespace().map(str::to_owned));
        let all = Options { seconds: 9, steps: 8, seed: 7, users: 6, systemd: true };
        assert_eq!(read("--seconds 9 --steps 8 --seed 7 --users 6 --systemd"), Ok(all));
        assert_eq!(read("--seconds"), Err(USAGE));
        assert_eq!(read("--what 1"), Err(USAGE));
    }
}
