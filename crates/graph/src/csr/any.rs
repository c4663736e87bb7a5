//! A graph whose id width is known only at run time.

use super::Csr;

/// A graph with `u32` ids, or with `u64` ids where it has more than 2³² nodes.
///
/// Use [`with_csr!`](crate::with_csr) to run generic code on whichever it is.
#[derive(Clone, Debug, PartialEq)]
pub enum AnyCsr {
    /// At most 2³² nodes.
    Narrow(Csr<u32>),
    /// More.
    Wide(Csr<u64>),
}

/// Runs the same expression on the graph inside an [`AnyCsr`], whatever its id width.
///
/// ```
/// use graphweft_graph::{AnyCsr, Csr, with_csr};
/// let any = AnyCsr::from(Csr::<u32>::from_valid(vec![0, 1], vec![0], 1));
/// assert_eq!(with_csr!(&any, g => g.num_edges()), 1);
/// ```
#[macro_export]
macro_rules! with_csr {
    ($any:expr, $g:ident => $body:expr) => {
        match $any {
            $crate::AnyCsr::Narrow($g) => $body,
            $crate::AnyCsr::Wide($g) => $body,
        }
    };
}

impl AnyCsr {
    /// Rows.
    pub fn num_nodes(&self) -> usize {
        with_csr!(self, g => g.num_dst())
    }

    /// Stored entries.
    pub fn num_edges(&self) -> usize {
        with_csr!(self, g => g.num_edges())
    }

    /// Applies one transformation that keeps the id width.
    pub fn map(self, narrow: impl FnOnce(Csr<u32>) -> Csr<u32>, wide: impl FnOnce(Csr<u64>) -> Csr<u64>) -> Self {
        match self {
            Self::Narrow(g) => Self::Narrow(narrow(g)),
            Self::Wide(g) => Self::Wide(wide(g)),
        }
    }
}

impl From<Csr<u32>> for AnyCsr {
    fn from(g: Csr<u32>) -> Self {
        Self::Narrow(g)
    }
}

impl From<Csr<u64>> for AnyCsr {
    fn from(g: Csr<u64>) -> Self {
        Self::Wide(g)
    }
}
