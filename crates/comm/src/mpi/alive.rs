//! Whether the processes of other ranks are still there, where that can be known: on this machine.

use std::fs;

/// A process, as others can find it: its number, when it started, and the space in which that number holds (this boot
/// of this machine, this container).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    id: u64,
    started: u64,
    space: u64,
}

impl Process {
    /// Numbers that describe a process.
    pub(super) const NUMBERS: usize = 3;

    /// This one. Where the system does not tell, one that is never found dead.
    pub(super) fn this() -> Self {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
        let container = fs::read_link("/proc/self/ns/pid").ok();
        let id = u64::from(std::process::id());
        match (boot, container, status(id)) {
            (Some(boot), Some(container), Some((_, started))) => {
                Self { id, started, space: hash(boot.as_bytes()) ^ hash(container.as_os_str().as_encoded_bytes()) }
            }
            _ => Self { id: 0, started: 0, space: 0 },
        }
    }

    pub(super) fn to_numbers(self) -> [u64; Self::NUMBERS] {
        [self.id, self.started, self.space]
    }

    pub(super) fn from_numbers([id, started, space]: [u64; Self::NUMBERS]) -> Self {
        Self { id, started, space }
    }

    /// Whether a process, seen from this one, has certainly ended.
    pub(super) fn is_dead(self, from: Self) -> bool {
        if self.space == 0 || self.space != from.space {
            return false;
        }
        match status(self.id) {
            // Its number may be another's by now; a zombie will not answer.
            Some((state, started)) => started != self.started || matches!(state, 'Z' | 'X'),
            None => !fs::exists(format!("/proc/{}", self.id)).unwrap_or(true),
        }
    }
}

/// State and start of a process.
fn status(id: u64) -> Option<(char, u64)> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name, in parentheses, may have spaces and parentheses itself. After it: state (field 3) … start (field 22).
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_dead_when_it_ended_and_only_then() {
        let this = Process::this();
        assert!(this.space != 0 && !this.is_dead(this));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let id = u64::from(child.id());
        let other = Process { id, started: status(id).unwrap().1, space: this.space };
        assert!(!other.is_dead(this));
        child.kill().unwrap();
        while !other.is_dead(this) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(other.is_dead(this));
        // Elsewhere, the same number says nothing.
        assert!(!Process { space: this.space ^ 1, ..other }.is_dead(this));
        assert!(Process { started: this.started + 1, ..this }.is_dead(this));
        assert_eq!(Process::from_numbers(this.to_numbers()), this);
    }
}
