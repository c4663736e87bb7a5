//! Do edges join nodes of the same class?

use rayon::prelude::*;

use crate::csr::{Csr, NodeId};
use crate::dataset::Labels;

/// The share of edges whose ends have the same class.
///
/// Self-loops, which always agree, and edges with an unlabelled end are left out. `None` where no edge is left, and for
/// several labels per node and numbers, where "the same class" means nothing.
pub fn edge_homophily<I: NodeId>(graph: &Csr<I>, labels: &Labels) -> Option<f64> {
    let Labels::Single(labels) = labels else { return None };
    let labels = &labels[..];
    let row = |i: usize| {
        let mine = labels[i];
        if mine < 0 {
            return (0, 0);
        }
        let others = graph.row(i).iter().map(|j| j.index()).filter(|&j| j != i && labels[j] >= 0);
        others.fold((0u64, 0u64), |(same, all), j| (same + u64::from(labels[j] == mine), all + 1))
    };
    let sum = |a: (u64, u64), b: (u64, u64)| (a.0 + b.0, a.1 + b.1);
    let (same, all) = (0..graph.num_dst()).into_par_iter().map(row).reduce(|| (0, 0), sum);
    (all > 0).then(|| same as f64 / all as f64)
}

/// Nodes per class, or per label where a node may have several; nothing where numbers are predicted.
pub fn class_counts(labels: &Labels, classes: usize) -> Vec<u64> {
    let mut counts = vec![0; classes];
    let mut add = |class: usize| {
        if let Some(count) = counts.get_mut(class) {
            *count += 1;
        }
    };
    match labels {
        Labels::Single(y) => y.iter().filter_map(|&c| usize::try_from(c).ok()).for_each(add),
        Labels::MultiU8(y) => y.iter().enumerate().filter(|(_, x)| **x == 1).for_each(|(at, _)| add(at % classes)),
        Labels::MultiF32(y) => y.iter().enumerate().filter(|(_, x)| **x > 0.0).for_each(|(at, _)| add(at % classes)),
        Labels::Values(_) => return Vec::new(),
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_and_unlabelled_ends_are_left_out() {
        // 0 ↔ 1, 0 ↔ 2, 1 ↔ 3, and a loop on 0; node 3 has no label.
        let g = Csr::<u32>::new(vec![0, 3, 5, 6, 7], vec![0, 1, 2, 0, 3, 0, 1], 4).unwrap();
        let labels = Labels::Single(vec![0, 0, 1, -1].into());
        assert_eq!(edge_homophily(&g, &labels), Some(0.5));
        assert_eq!(class_counts(&labels, 2), [2, 1]);

        assert_eq!(edge_homophily(&g, &Labels::Single(vec![-1; 4].into())), None);
        let multi = Labels::MultiU8(vec![1, 0, 1, 1, 0, 1, 0, 0].into());
        assert_eq!(edge_homophily(&g, &multi), None);
        assert_eq!(class_counts(&multi, 2), [2, 2]);
    }
}
