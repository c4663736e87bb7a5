//! What the rank that leads decides before a run, for all of them.

use std::path::PathBuf;

use crate::error::Result;
use crate::planning::plan::Plan;
use crate::run::checkpoint::WholeCheckpoint;

/// Where a run is, how its work is spread, and what it goes on from.
pub(crate) struct Decision {
    pub(crate) folder: PathBuf,
    pub(crate) plan: Plan,
    pub(crate) from: Option<WholeCheckpoint>,
}

/// The same as a message to another process, which reads the checkpoint by itself.
#[derive(serde::Serialize, serde::Deserialize)]
struct Message {
    folder: PathBuf,
    plan: Plan,
    from: Option<PathBuf>,
}

impl Decision {
    /// The bytes that other processes get.
    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        let message = Message {
            folder: self.folder.clone(),
            plan: self.plan.clone(),
            from: self.from.as_ref().map(|from| from.folder.clone()),
        };
        let message = serde_json::to_vec(&message).map_err(unreadable)?;
        // Parts, of which there is a number for every node, as they are.
        let parts = crate::run::checkpoint::parts::encode(self.plan.parts.as_deref())?;
        Ok([&(message.len() as u64).to_le_bytes()[..], &message, &parts].concat())
    }

    /// From these bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let short = || unreadable(serde::de::Error::custom("it is too short"));
        let (length, rest) = bytes.split_first_chunk().ok_or_else(short)?;
        let (message, parts) = rest.split_at_checked(u64::from_le_bytes(*length) as usize).ok_or_else(short)?;
        let Message { folder, plan, from } = serde_json::from_slice(message).map_err(unreadable)?;
        let parts = crate::run::checkpoint::parts::decode(std::path::Path::new("the plan of rank 0"), parts)?;
        let from = from.map(WholeCheckpoint::read).transpose()?;
        Ok(Self { folder, plan: Plan { parts, ..plan }, from })
    }
}

#[allow(clippy::needless_pass_by_value)] // As `map_err` wants it.
fn unreadable(e: serde_json::Error) -> graphweft_base::Error {
    let what = format!("the plan of rank 0 cannot be understood: {e}");
    graphweft_base::Error::request(what, "start the same build on every node")
}
