//! A small graph whose parts need as much of one another as those of a large one.

use graphweft_graph::Csr;

/// Of a row that is needed elsewhere, edges that need it there.
const USES: usize = 2;

/// `groups` parts of `rows` nodes each, with `degree` edges into every node, of which the parts together need `alpha`
/// times as many rows of others as there are nodes: from each other part the same number, its first ones.
pub(super) fn graph(groups: usize, rows: usize, degree: usize, alpha: f64) -> Result<Csr<u32>, String> {
    let peers = groups.saturating_sub(1);
    // From each other part; a part cannot need more than there is.
    let needed = if peers == 0 { 0 } else { ((alpha * rows as f64 / peers as f64).round() as usize).clamp(1, rows) };
    let cut = (USES * needed * peers).max(needed * peers).min(rows * degree);
    let mut indices: Vec<u32> = Vec::with_capacity(groups * rows * degree);
    for group in 0..groups {
        let mut served = 0;
        for row in 0..rows {
            let mut sources: Vec<u32> = (0..degree)
                .map(|k| {
                    // Cut edges are spread evenly over the rows, and over the rows that are needed.
                    let place = row * degree + k;
                    let due = (place + 1) * cut / (rows * degree);
                    if due > served && needed > 0 {
                        let which = served % (needed * peers);
                        served += 1;
                        let peer = (group + 1 + which % peers) % groups;
                        return (peer * rows + which / peers) as u32;
                    }
                    (group * rows + (row + k * 7 + 1) % rows) as u32
                })
                .collect();
            sources.sort_unstable();
            indices.extend(sources);
        }
    }
    let nodes = groups * rows;
    let indptr: Vec<u64> = (0..=nodes).map(|node| (node * degree) as u64).collect();
    Csr::new(indptr, indices, nodes).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use graphweft_base::progress::Silent;
    use graphweft_graph::partition::{Method, Options, partition, statistics};

    use super::*;

    #[test]
    fn parts_need_what_they_are_told_to() {
        for (groups, alpha) in [(2, 0.5), (8, 0.3), (16, 2.0), (4, 3.0), (1, 0.0)] {
            for degree in [8, 16] {
                let graph = graph(groups, 512, degree, alpha).unwrap();
                let parts = partition(&graph, &Options::new(Method::Contiguous, groups), &Silent).unwrap();
                let found = statistics(&graph, &parts);
                assert!((found.alpha - alpha).abs() <= 0.04 * alpha, "{groups} {alpha}: {}", found.alpha);
                assert!(found.rows.iter().all(|rows| *rows == 512) && found.imbalance.edges == 1.0);
            }
        }
    }
}
