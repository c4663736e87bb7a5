//! Splits of links.

use graphweft_graph::dataset::{LinkSplit, Split};

use super::Data;
use crate::error::{Error, Result};

impl Data {
    /// The split of links of this name.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn link_split(&self, name: &str) -> Result<&LinkSplit> {
        self.links.iter().find(|links| links.name == name).ok_or_else(|| {
            let problem = format!("{} has no split {name:?} of links", self.name);
            Error::setting("data.split", problem, "choose one that is there: links are not drawn")
        })
    }
}

/// A split of links as one of anything.
pub(super) fn pairs(links: &LinkSplit) -> Split {
    let LinkSplit { name, train, valid, test, .. } = links.clone();
    Split { name, train, valid, test }
}
