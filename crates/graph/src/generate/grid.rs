//! A grid: each node is joined to the nodes left, right, above and below. Regular, planar, without hubs: the other
//! extreme.

use std::fmt;
use std::ops::Range;

use graphweft_base::Result;

use super::MOST_NODES;
use super::counting::Draws;
use super::fields::Fields;

/// `grid:R:C`. Node r·C + c stands in row r and column c.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    rows: u64,
    columns: u64,
}

impl Grid {
    pub(super) fn parse(mut fields: Fields<'_>) -> Result<Self> {
        let (rows, columns) = (fields.integer("R", 1..=MOST_NODES)?, fields.integer("C", 1..=MOST_NODES)?);
        if rows.checked_mul(columns).is_none_or(|n| n > MOST_NODES) {
            return Err(fields.error(format_args!("R·C is more than {MOST_NODES} nodes")));
        }
        fields.end()?;
        Ok(Self { rows, columns })
    }
}

impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "grid:{}:{}", self.rows, self.columns)
    }
}

/// Draw 2i goes from node i to the right, draw 2i + 1 down.
impl Draws for Grid {
    fn num_nodes(&self) -> u64 {
        self.rows * self.columns
    }

    fn len(&self) -> u64 {
        2 * self.num_nodes()
    }

    fn list(&self, draws: Range<u64>, mut edge: impl FnMut(u32, u32)) {
        for draw in draws {
            let (node, down) = (draw / 2, draw % 2 == 1);
            let (there, inside) = if down {
                (node + self.columns, node + self.columns < self.num_nodes())
            } else {
                (node + 1, (node + 1) % self.columns != 0)
            };
            if inside {
                edge(node as u32, there as u32);
            }
        }
    }
}
