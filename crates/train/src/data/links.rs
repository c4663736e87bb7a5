//! Splits of links.

use graphweft_graph::dataset::{LinkSplit, Split};

use super::Data;
use crate::error::{Error, Result};

impl Data {
    /// Relations of links; 0 where these have none.
    pub(crate) fn relations(&self) -> usize {
        if self.links.iter().any(|links| links.width == 3) { self.relation_names.len() } else { 0 }
    }

    /// Numbers of a link.
    pub(crate) fn link_width(&self) -> usize {
        self.links.first().map_or(2, |links| links.width)
    }

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
