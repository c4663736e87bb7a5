//! Ranks of a group among those of the world.

use crate::error::{Error, Result};

/// The place of a communicator in its group, which knows its own `rank` and the `members`.
macro_rules! own_place {
    () => {
        fn rank(&self) -> usize {
            self.rank
        }

        fn size(&self) -> usize {
            self.members.len()
        }
    };
}
pub(crate) use own_place;

/// Rank `peer` of a group as a rank of the world.
pub(crate) fn member(members: &[usize], op: &'static str, peer: usize) -> Result<usize> {
    members.get(peer).copied().ok_or_else(|| {
        let problem = format!("there is no rank {peer} among {}", members.len());
        Error::Argument { op, problem }
    })
}

/// This rank's place among `members`, and these as ranks of the world.
pub(crate) fn chosen(all: &[usize], rank: usize, members: &[usize]) -> Result<(usize, Vec<usize>)> {
    let world: Option<Vec<usize>> = members.iter().map(|m| all.get(*m).copied()).collect();
    let twice = members.iter().enumerate().any(|(k, m)| members[..k].contains(m));
    match (world, members.iter().position(|m| *m == rank)) {
        (Some(world), Some(place)) if !twice => Ok((place, world)),
        _ => {
            let problem = format!("{members:?} is no list of different ranks that has rank {rank} of {}", all.len());
            Err(Error::Argument { op: "split", problem })
        }
    }
}
