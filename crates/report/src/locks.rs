//! Whether a lock on a folder says anything about other hosts.
//!
//! Whoever trains holds a lock on the folder of the run. Network file systems keep locks on folders on the host that
//! has taken them (NFS sends those on files alone), so a folder there that seems free may be written to from elsewhere.
//! There the time of the last write decides as well.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// So long after the last write, a run on another host counts as stopped.
const QUIET: Duration = Duration::from_secs(5 * 60);
/// File systems that several hosts share. Those of a user's process (`fuse.sshfs`) are among them.
const SHARED: [&str; 13] =
    ["nfs", "nfs3", "nfs4", "cifs", "smb3", "lustre", "ceph", "gpfs", "beegfs", "9p", "afs", "gfs2", "ocfs2"];

/// Whether the run in `folder`, which no process of this host has locked, may be going on elsewhere: it is on a file
/// system that others share, and was written to lately.
pub(crate) fn may_go_on_elsewhere(folder: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let Ok(whole) = folder.canonicalize() else { return false };
    is_shared(&mounts, &whole) && written_lately(folder, SystemTime::now())
}

/// Whether one of the files of a run was written to a short time before `now`.
fn written_lately(folder: &Path, now: SystemTime) -> bool {
    ["times.jsonl", "metrics.jsonl", "trace.json", "config.toml"].iter().any(|name| {
        let written = fs::metadata(folder.join(name)).and_then(|file| file.modified());
        // A clock of the server that is ahead of ours is no sign of age.
        written.is_ok_and(|time| now.duration_since(time).map_or(true, |age| age < QUIET))
    })
}

/// Whether the innermost mount that has this folder is of a file system that several hosts share.
fn is_shared(mounts: &str, folder: &Path) -> bool {
    let mounted = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (place, kind) = (plain(fields.next()?), fields.next()?);
        folder.starts_with(&place).then(|| (Path::new(&place).components().count(), kind))
    });
    // Of two at one place, the later one covers the other.
    mounted.max_by_key(|(depth, _)| *depth).is_some_and(|(_, kind)| SHARED.contains(&kind) || kind.starts_with("fuse."))
}

/// A path of the table of mounts, which has blanks as octal numbers.
fn plain(field: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(field.to_string(), |text, (octal, letter)| text.replace(octal, letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "/dev/sda1 / ext4 rw 0 0\nserver:/home /home nfs4 rw,vers=4.2 0 0\n\
        tmpfs /home/me/fast tmpfs rw 0 0\nserver:/x /mnt/my\\040runs nfs rw 0 0\nme@far: /mnt/far fuse.sshfs rw 0 0\n";

    #[test]
    fn the_innermost_mount_says_whether_others_share_it() {
        let shared = |path: &str| is_shared(MOUNTS, Path::new(path));
        assert!(shared("/home/me/runs/a") && shared("/mnt/my runs/a") && shared("/mnt/far/a"));
        assert!(
            !shared("/tmp/a") && !shared("/home/me/fast/a") && !shared("/homes/a") && !is_shared("", Path::new("/"))
        );
    }

    #[test]
    fn a_run_counts_as_going_on_for_a_time_after_its_last_write() {
        let dir = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        assert!(!written_lately(dir.path(), now));
        fs::write(dir.path().join("metrics.jsonl"), "").unwrap();
        assert!(written_lately(dir.path(), now) && written_lately(dir.path(), now + QUIET / 2));
        assert!(!written_lately(dir.path(), now + 2 * QUIET));
    }
}
