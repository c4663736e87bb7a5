//! Ids as they are written, numbered in the order in which they first stand in the input.
//!
//! Any text is an id; an integer is its decimal digits, so that 7 in one file is 7 in another, of whatever format. Ids
//! are divided by their hash among [`SHARDS`], which are filled in parallel: each looks at the ids of its own in the
//! order of the input, so that the numbers do not depend on threads. What is kept of an id are its bytes and 28 more;
//! of the text that is being read, only a few pieces are in memory.

use std::hash::{DefaultHasher, Hasher};

use graphweft_base::{Error, Result};
use rayon::prelude::*;

use crate::read::NodeIds;
use crate::read::text::Integer;

/// No longer text is an id.
pub(super) const LONGEST: usize = 4096;

const SHARD_BITS: u32 = 6;
const SHARDS: usize = 1 << SHARD_BITS;
/// Marks an entry that this batch added, before it has a number.
const FRESH: u64 = 1 << 63;
const EMPTY: u64 = u64::MAX;

/// Ids read from a piece of a table.
#[derive(Default)]
pub(in crate::read) struct Keys {
    bytes: Vec<u8>,
    ends: Vec<u32>,
    hashes: Vec<u64>,
}

impl Keys {
    pub(super) fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len() as u32);
        self.hashes.push(hash(key));
    }

    fn get(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start as usize..self.ends[at] as usize]
    }

    /// The places of the keys of each shard, and where each shard's begin.
    fn by_shard(&self) -> Buckets {
        let mut starts = vec![0u32; SHARDS + 1];
        self.hashes.iter().for_each(|&h| starts[shard(h) + 1] += 1);
        (0..SHARDS).for_each(|s| starts[s + 1] += starts[s]);
        let (mut next, mut order) = (starts.clone(), vec![0u32; self.hashes.len()]);
        for (at, &h) in self.hashes.iter().enumerate() {
            let place = &mut next[shard(h)];
            order[*place as usize] = at as u32;
            *place += 1;
        }
        Buckets { order, starts }
    }
}

struct Buckets {
    order: Vec<u32>,
    starts: Vec<u32>,
}

impl Buckets {
    fn of(&self, shard: usize) -> &[u32] {
        &self.order[self.starts[shard] as usize..self.starts[shard + 1] as usize]
    }
}

fn hash(key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(key);
    hasher.finish()
}

fn shard(hash: u64) -> usize {
    (hash >> (64 - SHARD_BITS)) as usize
}

/// An id that is known.
#[derive(Clone, Copy)]
struct Entry {
    /// Where its bytes are.
    start: u64,
    len: u32,
    number: u32,
}

#[derive(Default)]
struct Shard {
    /// 32 bits of the hash and the place in `entries`, or [`EMPTY`]. As many as a power of two, at least twice as many
    /// as entries.
    slots: Vec<u64>,
    entries: Vec<Entry>,
    bytes: Vec<u8>,
    /// Entries that the current batch added, with where they stood.
    fresh: Vec<(u64, u32)>,
}

impl Shard {
    fn key(&self, entry: Entry) -> &[u8] {
        &self.bytes[entry.start as usize..][..entry.len as usize]
    }

    /// The slot that has `key`, or the one it belongs into.
    fn slot(&self, key: &[u8], hash: u64) -> usize {
        let (mask, tag) = (self.slots.len() - 1, hash as u32);
        let mut at = (hash >> 26) as usize & mask;
        loop {
            let slot = self.slots[at];
            let same = |slot: u64| self.key(self.entries[slot as u32 as usize]) == key;
            if slot == EMPTY || ((slot >> 32) as u32 == tag && same(slot)) {
                return at;
            }
            at = (at + 1) & mask;
        }
    }

    fn find(&self, key: &[u8], hash: u64) -> Option<u64> {
        if self.slots.is_empty() {
            return None;
        }
        let slot = self.slots[self.slot(key, hash)];
        (slot != EMPTY).then(|| u64::from(self.entries[slot as u32 as usize].number))
    }

    /// The number of `key`; a new entry, marked as such, if there was none.
    fn enter(&mut self, key: &[u8], hash: u64, position: u64) -> u64 {
        if (self.entries.len() + 1) * 2 > self.slots.len() {
            self.grow();
        }
        let at = self.slot(key, hash);
        let slot = self.slots[at];
        if slot != EMPTY {
            let (place, number) = (slot as u32, self.entries[slot as u32 as usize].number);
            return if number == u32::MAX { FRESH | u64::from(place) } else { number.into() };
        }
        let place = self.entries.len() as u32;
        self.slots[at] = (hash & 0xffff_ffff) << 32 | u64::from(place);
        self.entries.push(Entry { start: self.bytes.len() as u64, len: key.len() as u32, number: u32::MAX });
        self.bytes.extend_from_slice(key);
        self.fresh.push((position, place));
        FRESH | u64::from(place)
    }

    fn grow(&mut self) {
        let mut slots = vec![EMPTY; (self.slots.len() * 2).max(16)];
        let mask = slots.len() - 1;
        for (place, &entry) in self.entries.iter().enumerate() {
            let hash = hash(self.key(entry));
            let mut at = (hash >> 26) as usize & mask;
            while slots[at] != EMPTY {
                at = (at + 1) & mask;
            }
            slots[at] = (hash & 0xffff_ffff) << 32 | place as u64;
        }
        self.slots = slots;
    }
}

/// Different ids with their numbers.
pub(in crate::read) struct Ids {
    shards: Vec<Shard>,
    count: u64,
}

impl Ids {
    pub(super) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Shard::default()).collect(), count: 0 }
    }

    /// How many there are.
    pub(in crate::read) fn len(&self) -> u64 {
        self.count
    }

    /// The number of an id.
    pub(in crate::read) fn find(&self, key: &[u8]) -> Option<u64> {
        let hash = hash(key);
        self.shards[shard(hash)].find(key, hash)
    }

    /// The number of an id that is an integer.
    pub(in crate::read) fn find_integer(&self, id: Integer) -> Option<u64> {
        let sign = if id.negative && id.magnitude > 0 { "-" } else { "" };
        self.find(format!("{sign}{}", id.magnitude).as_bytes())
    }

    /// The numbers of all keys, piece by piece; those that are new get the next ones in their order.
    pub(super) fn number(&mut self, pieces: &[Keys]) -> Result<Vec<Vec<u64>>> {
        let buckets: Vec<Buckets> = pieces.par_iter().map(Keys::by_shard).collect();
        let enter = |(s, shard): (usize, &mut Shard)| -> Vec<u64> {
            let places = buckets.iter().enumerate().flat_map(|(p, b)| b.of(s).iter().map(move |&at| (p, at as usize)));
            let position = |p: usize, at: usize| (p as u64) << 32 | at as u64;
            places.map(|(p, at)| shard.enter(pieces[p].get(at), pieces[p].hashes[at], position(p, at))).collect()
        };
        let found: Vec<Vec<u64>> = self.shards.par_iter_mut().enumerate().map(enter).collect();
        self.name_fresh()?;
        // Where the results of each piece begin in each shard's.
        let mut begin = vec![0usize; SHARDS];
        let mut begins = Vec::with_capacity(pieces.len());
        for bucket in &buckets {
            begins.push(begin.clone());
            (0..SHARDS).for_each(|s| begin[s] += bucket.of(s).len());
        }
        let shards = &self.shards;
        let scatter = |(bucket, begin): (&Buckets, &Vec<usize>)| {
            let mut numbers = vec![0u64; bucket.order.len()];
            for s in 0..SHARDS {
                for (&at, &number) in bucket.of(s).iter().zip(&found[s][begin[s]..]) {
                    numbers[at as usize] = match number & FRESH {
                        0 => number,
                        _ => shards[s].entries[(number & !FRESH) as usize].number.into(),
                    };
                }
            }
            numbers
        };
        Ok(buckets.par_iter().zip(&begins).map(scatter).collect())
    }

    /// Gives the entries that are new their numbers.
    fn name_fresh(&mut self) -> Result<()> {
        let mut fresh: Vec<(u64, u32, u32)> = Vec::new();
        for (s, shard) in self.shards.iter_mut().enumerate() {
            fresh.extend(shard.fresh.drain(..).map(|(position, place)| (position, s as u32, place)));
        }
        fresh.par_sort_unstable();
        if self.count + fresh.len() as u64 >= u64::from(u32::MAX) {
            let what = format!("more than {} different ids", u32::MAX - 1);
            return Err(Error::request(what, "number the nodes from 0, and import an edge list"));
        }
        for (number, (_, s, place)) in (self.count..).zip(&fresh) {
            self.shards[*s as usize].entries[*place as usize].number = number as u32;
        }
        self.count += fresh.len() as u64;
        Ok(())
    }

    /// The id that has this number, for a message.
    pub(super) fn text(&self, number: u64) -> String {
        let of = |shard: &Shard| {
            let entry = shard.entries.iter().find(|entry| u64::from(entry.number) == number)?;
            Some(String::from_utf8_lossy(shard.key(*entry)).into_owned())
        };
        self.shards.iter().find_map(of).unwrap_or_default()
    }

    /// All of them by number.
    pub(in crate::read) fn into_written(self) -> Written {
        let mut places = vec![(0u32, 0u32); self.count as usize];
        for (s, shard) in self.shards.iter().enumerate() {
            for (place, entry) in shard.entries.iter().enumerate() {
                places[entry.number as usize] = (s as u32, place as u32);
            }
        }
        let bytes = self.shards.iter().map(|s| s.bytes.len() + s.entries.len()).sum();
        let mut written = Written { lines: Vec::with_capacity(bytes) };
        for (s, place) in places {
            let shard = &self.shards[s as usize];
            written.push(shard.key(shard.entries[place as usize]));
        }
        written
    }
}

/// Ids by number, a line each.
#[derive(Clone, Debug, Default)]
pub(in crate::read) struct Written {
    lines: Vec<u8>,
}

impl Written {
    fn push(&mut self, id: &[u8]) {
        self.lines.extend_from_slice(id);
        self.lines.push(b'\n');
    }

    /// The numbers of rows.
    pub(super) fn rows(count: u64) -> Self {
        let mut all = Self::default();
        (0..count).for_each(|row| all.push(row.to_string().as_bytes()));
        all
    }

    /// These, and then the others.
    pub(super) fn append(&mut self, mut others: Self) {
        self.lines.append(&mut others.lines);
    }

    /// What a dataset folder keeps of them: nothing where they are the numbers of rows.
    pub(in crate::read) fn kept(self) -> Kept {
        let ids = || self.lines.split_inclusive(|&b| b == b'\n').map(|line| &line[..line.len() - 1]);
        if let Some(signed) = ids().map(|id| canonical(id)?.parse().ok()).collect::<Option<Vec<i64>>>() {
            let plain = signed.iter().enumerate().all(|(row, &id)| id == row as i64);
            return if plain { Kept::Nothing } else { Kept::Ids(NodeIds::Signed(signed)) };
        }
        match ids().map(|id| canonical(id)?.parse().ok()).collect::<Option<Vec<u64>>>() {
            Some(unsigned) => Kept::Ids(NodeIds::Unsigned(unsigned)),
            None => Kept::Names(self.lines),
        }
    }
}

/// What a dataset folder keeps of ids.
#[derive(Debug, PartialEq)]
pub(in crate::read) enum Kept {
    Nothing,
    Ids(NodeIds),
    /// One a line.
    Names(Vec<u8>),
}

/// An integer as it is written by a program, so that its digits can be had back from its value.
fn canonical(id: &[u8]) -> Option<&str> {
    let digits = id.strip_prefix(b"-").unwrap_or(id);
    let plain = matches!(digits, [b'0'] if digits.len() == id.len()) || matches!(digits, [b'1'..=b'9', ..]);
    std::str::from_utf8(id).ok().filter(|_| plain && digits.iter().all(u8::is_ascii_digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(ids: &[String]) -> Keys {
        let mut keys = Keys::default();
        ids.iter().for_each(|id| keys.push(id.as_bytes()));
        keys
    }

    /// A map that is filled one by one says the same.
    #[test]
    fn numbers_follow_the_order_of_first_appearance() {
        let all: Vec<String> =
            (0..60_000u64).map(|i| format!("n{}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50)).collect();
        let mut seen = std::collections::HashMap::new();
        let expected: Vec<u64> = all
            .iter()
            .map(|id| {
                let next = seen.len() as u64;
                *seen.entry(id.clone()).or_insert(next)
            })
            .collect();
        for sizes in [[7usize, 3], [1000, 4], [60_000, 1]] {
            let mut ids = Ids::new();
            let mut numbers = Vec::new();
            for batch in all.chunks(sizes[0] * sizes[1]) {
                let pieces: Vec<Keys> = batch.chunks(sizes[0]).map(keys).collect();
                numbers.extend(ids.number(&pieces).unwrap().concat());
            }
            assert_eq!(numbers, expected);
            assert_eq!(ids.len(), seen.len() as u64);
            assert!(all.iter().zip(&expected).all(|(id, &n)| ids.find(id.as_bytes()) == Some(n)));
            assert_eq!(ids.find(b"n-1"), None);
            let lines = ids.into_written().lines;
            let lines: Vec<&str> = std::str::from_utf8(&lines).unwrap().lines().collect();
            assert!(lines.iter().enumerate().all(|(n, id)| seen[*id] == n as u64));
        }
    }

    #[test]
    fn integers_are_kept_as_such_and_words_as_lines() {
        let kept = |all: &[&str]| {
            let mut ids = Ids::new();
            ids.number(&[keys(&all.iter().map(ToString::to_string).collect::<Vec<_>>())]).unwrap();
            ids.into_written().kept()
        };
        assert_eq!(kept(&["0", "1", "2"]), Kept::Nothing);
        assert_eq!(kept(&["5", "-3"]), Kept::Ids(NodeIds::Signed(vec![5, -3])));
        assert_eq!(kept(&["5", "18446744073709551615"]), Kept::Ids(NodeIds::Unsigned(vec![5, u64::MAX])));
        for words in [["5", "05"], ["0", "-0"], ["1", "a"], ["-1", "18446744073709551615"], ["1", "1.0"]] {
            assert_eq!(kept(&words), Kept::Names(format!("{}\n{}\n", words[0], words[1]).into_bytes()));
        }
    }
}
