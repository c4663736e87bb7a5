//! Consecutive layers for every stage, so that the slowest is as fast as can be.

use std::ops::Range;

/// The layers of each of `stages`, at least one each: of all ways to cut the list, one whose most expensive stage is
/// cheapest. There are as many layers as stages, or more.
pub(super) fn cut(costs: &[f64], stages: usize) -> Vec<Range<usize>> {
    let layers = costs.len();
    let sums: Vec<f64> = std::iter::once(0.0)
        .chain(costs.iter().scan(0.0, |sum, cost| {
            *sum += cost;
            Some(*sum)
        }))
        .collect();
    // best[k] after round s: the least that the most expensive of s stages costs which share the first k layers, and
    // where the last of them begins.
    let mut best: Vec<(f64, usize)> = sums.iter().map(|sum| (*sum, 0)).collect();
    let mut rounds = Vec::with_capacity(stages);
    for stage in 1..stages {
        let next = (0..=layers).map(|end| {
            let worst = |start: usize| best[start].0.max(sums[end] - sums[start]);
            let choices = (stage..end).map(|start| (worst(start), start));
            choices.fold((f64::INFINITY, 0), |least, choice| if choice.0 < least.0 { choice } else { least })
        });
        let next = next.collect();
        rounds.push(std::mem::replace(&mut best, next));
    }
    rounds.push(best);
    let mut end = layers;
    let mut all: Vec<Range<usize>> = rounds
        .iter()
        .rev()
        .map(|best| {
            let range = best[end].1..end;
            end = range.start;
            range
        })
        .collect();
    all.reverse();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worst(costs: &[f64], cut: &[Range<usize>]) -> f64 {
        cut.iter().map(|layers| costs[layers.clone()].iter().sum()).fold(0.0, f64::max)
    }

    /// Every way to cut.
    fn all(layers: usize, stages: usize) -> Vec<Vec<Range<usize>>> {
        if stages == 1 {
            return vec![std::iter::once(0..layers).collect()];
        }
        let before = (stages - 1..layers).flat_map(|start| {
            all(start, stages - 1).into_iter().map(move |mut cut| {
                cut.push(start..layers);
                cut
            })
        });
        before.collect()
    }

    #[test]
    fn no_other_cut_is_better() {
        for seed in 0..40u32 {
            let layers = 1 + seed as usize % 9;
            let costs: Vec<f64> = (0..layers as u32).map(|k| f64::from((k * 37 + seed * 11) % 17)).collect();
            for stages in 1..=layers {
                let found = cut(&costs, stages);
                assert_eq!(found.len(), stages);
                assert!(found.iter().all(|r| !r.is_empty()) && found[0].start == 0 && found[stages - 1].end == layers);
                assert!(found.windows(2).all(|w| w[0].end == w[1].start));
                let least = all(layers, stages).iter().map(|cut| worst(&costs, cut)).fold(f64::INFINITY, f64::min);
                assert_eq!(worst(&costs, &found), least, "{costs:?} in {stages}");
            }
        }
    }

    #[test]
    fn deep_models_are_shared_evenly() {
        let costs = [vec![1.0], vec![10.0; 32], vec![1.0]].concat();
        let sizes: Vec<usize> = cut(&costs, 8).iter().map(Range::len).collect();
        assert_eq!(worst(&costs, &cut(&costs, 8)), 41.0);
        assert_eq!(sizes.iter().sum::<usize>(), 34);
    }
}
