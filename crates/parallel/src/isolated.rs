//! `isolated`: each rank learns from pieces of the graph, and only gradients move. Approximate.
//!
//! What a piece is, and how it stands for the rest, is told where epochs are (`epochs/pieces` of crate `train`). Where
//! all rows are needed at once, for exact scores, ranks are a [ring](crate::Ring), or one rank has them all.

use std::rc::Rc;

use graphweft_model::GraphOps;
use graphweft_tensor::Result;

use crate::strategy::{Family, Fewer, Many, Rows, Situation, Spread, no_settings};
use crate::{local, ring};

// Its settings are in the section of that name.
no_settings!("isolated", "approximate: each rank learns from pieces of its own, and only gradients move");

impl Spread for Settings {
    fn family(&self) -> &'static str {
        Self::NAME
    }

    fn is_exact(&self) -> bool {
        false
    }

    fn ops(&self, rows: Rows<'_>) -> Result<Rc<dyn GraphOps>> {
        all_rows(rows)
    }

    fn reason(&self, _: &Situation) -> String {
        "approximate, as allowed: ranks learn from pieces of their own, and only gradients move".into()
    }

    fn on_fewer(&self, many: &Many<'_>) -> std::result::Result<Fewer, String> {
        Ok(Fewer::groups(*self, many.groups(many.ranks, many.most), many.ranks))
    }
}

/// All rows at once, for scores of a model that was trained otherwise.
pub(crate) fn all_rows(rows: Rows<'_>) -> Result<Rc<dyn GraphOps>> {
    match rows.link.size() {
        1 => local::Settings.ops(rows),
        _ => ring::Settings { depth: 1 }.ops(rows),
    }
}
