//! Whether others use the machine while it is measured: what the processors did, less what this process did.

use std::fs;

/// Ticks of all processors, in the unit in which the operating system counts.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ticks {
    /// Computing, for anybody, or taken away by other virtual machines.
    used: f64,
    /// All that have passed.
    passed: f64,
    /// For this process.
    own: f64,
}

/// Looks at both ends of a measurement.
pub(super) struct Watch(Option<Ticks>);

impl Watch {
    pub(super) fn start() -> Self {
        Self(now())
    }

    /// The share of all processors that others have used since then; nothing where nobody tells, or no time has passed.
    pub(super) fn others(&self) -> Option<f64> {
        between(self.0?, now()?)
    }
}

fn between(before: Ticks, after: Ticks) -> Option<f64> {
    let passed = after.passed - before.passed;
    let others = (after.used - before.used) - (after.own - before.own);
    (passed > 0.0).then(|| (others / passed).clamp(0.0, 1.0))
}

fn now() -> Option<Ticks> {
    let (stat, own) = (fs::read_to_string("/proc/stat").ok()?, fs::read_to_string("/proc/self/stat").ok()?);
    parse(&stat, &own)
}

/// From `/proc/stat` and `/proc/self/stat`, see proc(5).
fn parse(stat: &str, own: &str) -> Option<Ticks> {
    let all: Vec<f64> = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().flat_map(str::parse).collect();
    let [user, nice, system, idle, wait, interrupts, soft, stolen, ..] = all[..] else { return None };
    let used = user + nice + system + interrupts + soft + stolen;
    // The name of the program is in brackets, and may have some of its own.
    let fields: Vec<&str> = own.rsplit_once(')')?.1.split_whitespace().collect();
    let own = [fields.get(11)?, fields.get(12)?].map(|field| field.parse::<f64>().ok());
    Some(Ticks { used, passed: used + idle + wait, own: own[0]? + own[1]? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_use_is_what_is_used_less_what_is_our_own() {
        let at = |cpu: &str, own: &str| parse(&format!("cpu  {cpu} 0 0\ncpu0 1 1\n"), own);
        let own = |user: u32, system: u32| format!("7 (a ) b) R 1 7 7 0 -1 0 1 2 3 4 {user} {system} 0 0 20 0 3");
        let before = at("100 0 50 1000 10 5 5 20", &own(30, 10)).unwrap();
        assert_eq!(before, Ticks { used: 180.0, passed: 1190.0, own: 40.0 });
        // 200 ticks on: 100 were used, 60 by this process, of the others 10 by another machine.
        let after = at("180 0 60 1100 10 5 5 30", &own(80, 20)).unwrap();
        assert_eq!(between(before, after), Some(0.2));
        assert_eq!(between(before, before), None);
        assert!(at("1 2 3", &own(1, 1)).is_none() && at("1 2 3 4 5 6 7 8", "nonsense").is_none());
    }

    #[test]
    fn a_machine_that_others_use_is_noticed() {
        let watch = Watch::start();
        // Other processes, as many as there are processors.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut others: Vec<_> = (0..cores)
            .map(|_| std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap())
            .collect();
        std::thread::sleep(std::time::Duration::from_millis(400));
        let share = watch.others();
        others.iter_mut().for_each(|other| {
            other.kill().unwrap();
            other.wait().unwrap();
        });
        assert!(share.is_none_or(|share| share > 0.3), "{share:?}");
    }
}
