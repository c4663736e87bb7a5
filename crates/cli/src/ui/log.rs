//! `--log`: what is said, kept in a file with the time of each line.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use graphweft::{Error, Result};

/// A file that lines are added to.
#[derive(Clone)]
pub(crate) struct Log(Arc<Mutex<File>>);

impl Log {
    /// Opens it and adds a first line; what it has is kept.
    pub(super) fn open(path: &Path, first: &str) -> Result<Self> {
        let failed = |action| move |e| Error::not_written(action, path, e);
        let file = OpenOptions::new().append(true).create(true).open(path).map_err(failed("open the log"))?;
        let log = Self(Arc::new(Mutex::new(file)));
        log.write(first).map_err(failed("write the log"))?;
        Ok(log)
    }

    /// Adds every line of `text`.
    pub(super) fn add(&self, text: &str) {
        // A disk that has become full is no reason to stop what is logged.
        let _ = self.write(text);
    }

    fn write(&self, text: &str) -> io::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs());
        let lines: String = text.lines().map(|line| format!("{} {line}\n", in_utc(now))).collect();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(lines.as_bytes())
    }
}

/// Seconds since 1970 as a date and a time: 2026-11-18T05:12:10Z.
fn in_utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March, so that the day that some have more is their last: days of 400 years, of a year of these,
    // of a month.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z", era * 400 + year + later)
}

#[cfg(test)]
mod tests {
    use super::in_utc;

    #[test]
    fn times_are_those_of_a_calendar() {
        assert_eq!(in_utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(in_utc(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(in_utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(in_utc(1_794_978_730), "2026-11-18T05:12:10Z");
        assert_eq!(in_utc(4_107_542_400), "2100-03-01T00:00:00Z");
    }
}
