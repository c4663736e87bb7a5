//! What was read of files that only grow. A run that lasts has its page made again and again: each time, only what has
//! been added since is read, and a trace that is complete is packed once.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use serde_json::Value;

use crate::columns::Columns;
use crate::trace::{self, Room};

/// Files of a run as they were read last, for the next time. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Growing(Arc<Mutex<Files>>);

#[derive(Debug, Default)]
struct Files {
    /// Whole lines, and where the next one begins.
    lines: HashMap<PathBuf, (u64, Columns)>,
    /// With how much of them is wanted.
    traces: HashMap<PathBuf, (Stamp, Room, Value)>,
}

/// A file that has the same length and time is taken to be as it was. One of which only the beginning is read stays as
/// it is.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stamp(u64, Option<SystemTime>);

impl Stamp {
    fn of(file: &Metadata, room: Room) -> Self {
        if file.len() > room.bytes { Self(room.bytes, None) } else { Self(file.len(), file.modified().ok()) }
    }
}

impl Growing {
    fn files(&self) -> MutexGuard<'_, Files> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The columns of a file with a JSON object per line, and the number of a line that is none.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn columns(&self, path: &Path) -> io::Result<(Columns, Option<usize>)> {
        let mut file = fs::File::open(path)?;
        let (mut at, mut columns) = self.files().lines.remove(path).unwrap_or_default();
        if file.metadata()?.len() < at {
            (at, columns) = (0, Columns::default());
        }
        let mut added = Vec::new();
        file.seek(SeekFrom::Start(at))?;
        file.read_to_end(&mut added)?;
        let whole = added.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        if let Some(cut) = columns.extend(&String::from_utf8_lossy(&added[..whole])) {
            return Ok((columns, Some(cut)));
        }
        self.files().lines.insert(path.to_path_buf(), (at + whole as u64, columns.clone()));
        let cut = columns.extend(&String::from_utf8_lossy(&added[whole..]));
        Ok((columns, cut))
    }

    /// What `pack` makes of the text of a trace, or of its beginning; nothing if it says what is wrong with that.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn trace<E>(
        &self,
        path: &Path,
        room: Room,
        pack: impl FnOnce(&str, usize) -> Result<Value, E>,
    ) -> io::Result<Result<Value, E>> {
        let file = fs::File::open(path)?;
        let stamp = Stamp::of(&file.metadata()?, room);
        if let Some((_, _, trace)) = self.files().traces.get(path).filter(|(s, r, _)| (*s, *r) == (stamp, room)) {
            return Ok(Ok(trace.clone()));
        }
        let mut bytes = Vec::new();
        file.take(room.bytes).read_to_end(&mut bytes)?;
        let mut text = String::from_utf8_lossy(&bytes).into_owned();
        let is_part = stamp.1.is_none() && bytes.len() as u64 == room.bytes;
        if is_part {
            text = trace::beginning(&text);
        }
        Ok(pack(&text, room.events).map(|mut trace| {
            if let Some(trace) = trace.as_object_mut().filter(|_| is_part) {
                trace.insert("more".into(), true.into());
            }
            self.files().traces.insert(path.to_path_buf(), (stamp, room, trace.clone()));
            trace
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_has_grown_reads_as_one_that_is_read_at_once() {
        let (dir, before) = (tempfile::tempdir().unwrap(), Growing::default());
        let path = dir.path().join("metrics.jsonl");
        let text = "{\"epoch\":1,\"loss\":2}\n\n{\"epoch\":2,\"loss\":null,\"lr\":5}\n{\"epoch\":3,\"x\":[1]}\n{\"epo";
        for end in 0..=text.len() {
            fs::write(&path, &text[..end]).unwrap();
            assert_eq!(before.columns(&path).unwrap(), Growing::default().columns(&path).unwrap(), "{}", &text[..end]);
        }
        assert_eq!(before.columns(&path).unwrap().1, Some(5));
        assert_eq!(before.columns(&path).unwrap().0.to_json(), Columns::read(&text[..text.len() - 5]).0.to_json());
        // One that was begun anew is read from its beginning.
        fs::write(&path, "{\"epoch\":9}\n").unwrap();
        assert_eq!(before.columns(&path).unwrap().0.get("epoch"), [Some(9.0)]);
        assert!(before.columns(&dir.path().join("none")).is_err());
    }

    #[test]
    fn a_trace_is_packed_again_when_its_file_or_what_is_wanted_of_it_has_changed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace.json");
        let kept = Growing::default();
        let packed = |room: Room| {
            let mut anew = None;
            let pack = |text: &str, _: usize| {
                anew = Some(text.to_string());
                Ok::<_, ()>(Value::Null)
            };
            kept.trace(&path, room, pack).unwrap().unwrap();
            anew
        };
        let part = Room { events: 5, bytes: 9 };
        fs::write(&path, "[1]").unwrap();
        assert_eq!((packed(Room::ALL).as_deref(), packed(Room::ALL)), (Some("[1]"), None));
        assert_eq!((packed(part).as_deref(), packed(part)), (Some("[1]"), None));
        fs::write(&path, "[1,\n2,\n3,\n4]").unwrap();
        assert_eq!((packed(part).as_deref(), packed(part)), (Some("[1,\n2\n]\n"), None));
        fs::write(&path, "[1,\n2,\n3,\n4,\n5]").unwrap();
        assert_eq!(packed(part), None, "its beginning is as it was");
        assert_eq!(packed(Room::ALL).as_deref(), Some("[1,\n2,\n3,\n4,\n5]"));
    }
}
