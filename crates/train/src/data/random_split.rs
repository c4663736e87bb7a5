//! Splits that are drawn: `random:60/20/20` and `random:20-per-class`.
//!
//! Of the nodes whose label is known, the first takes shares in per cent. The second takes so many nodes of every class
//! to train on, half as many again to choose by, and all others to report on. What is drawn depends on the seed of the
//! run and on ids of nodes, and on nothing else: a node's place in line is a random number of its own.

use graphweft_base::random::Philox;
use graphweft_graph::dataset::Split;

use crate::data::Data;
use crate::error::{Error, Result};

const PREFIX: &str = "random:";
const PER_CLASS: &str = "-per-class";
/// Keeps these numbers apart from others that are drawn from the same seed.
const STREAM: u64 = 0x5eed_5711;

/// How to draw a split.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum RandomSplit {
    /// Per cent of the nodes for train, valid and test.
    Shares([f64; 3]),
    /// Nodes of each class to train on.
    PerClass(usize),
}

impl RandomSplit {
    /// What a name says, if it asks for a drawn split; or what is wrong with it.
    pub(crate) fn parse(name: &str) -> Option<std::result::Result<Self, String>> {
        let rule = name.strip_prefix(PREFIX)?;
        Some(match rule.strip_suffix(PER_CLASS) {
            Some(count) => match count.parse() {
                Ok(count) if count > 0 => Ok(Self::PerClass(count)),
                _ => Err(format!("{count:?} is not a number of nodes per class")),
            },
            None => shares(rule).map(Self::Shares),
        })
    }

    /// Draws it for the nodes of `data`.
    ///
    /// # Errors
    /// If there are too few nodes with labels, or several labels per node where classes are asked for.
    pub(crate) fn draw(self, name: &str, data: &Data, seed: u64) -> Result<Split> {
        let labels = data.labels()?.view();
        let refused = |problem: String, remedy: &str| Error::setting("data.split", problem, remedy);
        let random = Philox::new(seed, STREAM);
        let mut nodes: Vec<u64> = (0..data.items())
            .filter(|node| data.task.known(labels, *node, data.classes) > 0)
            .map(|node| node as u64)
            .collect();
        nodes.sort_by_key(|node| (random.bits(*node), *node));
        let [train, valid, test] = match self {
            Self::Shares(shares) => by_shares(&nodes, shares),
            Self::PerClass(count) => match data.task.classes(labels) {
                Ok(classes) => per_class(&nodes, classes, data.classes, count),
                Err(why) => {
                    return Err(refused(format!("nodes of {} {why}", data.name), "write random:60/20/20"));
                }
            },
        };
        for (part, ids) in [("train", &train), ("valid", &valid), ("test", &test)] {
            if ids.is_empty() {
                let problem =
                    format!("{name} leaves no node for {part}: {} nodes of {} have labels", nodes.len(), data.name);
                return Err(refused(problem, "take other shares, or fewer nodes per class"));
            }
        }
        Ok(Split { name: name.into(), train: train.into(), valid: valid.into(), test: test.into() })
    }
}

fn shares(rule: &str) -> std::result::Result<[f64; 3], String> {
    let parts: Vec<&str> = rule.split('/').collect();
    let [train, valid, test] = parts[..] else {
        return Err(format!("{rule:?} is not three shares in per cent"));
    };
    let share = |part: &str| match part.parse::<f64>() {
        Ok(share) if share > 0.0 && share < 100.0 => Ok(share),
        _ => Err(format!("{part:?} is not a share between 0 and 100 per cent")),
    };
    let all = [share(train)?, share(valid)?, share(test)?];
    let sum: f64 = all.iter().sum();
    if sum > 100.0 + 1e-9 { Err(format!("the shares add up to {sum} per cent")) } else { Ok(all) }
}

/// The first of a line of nodes go to train, the next to valid and then to test; ids ascend in each.
fn by_shares(nodes: &[u64], shares: [f64; 3]) -> [Vec<i64>; 3] {
    let mut until = 0.0;
    let mut from = 0;
    shares.map(|share| {
        until += share;
        let to = ((nodes.len() as f64 * until / 100.0).round() as usize).min(nodes.len());
        let part = ascending(nodes[from..to].iter());
        from = to;
        part
    })
}

fn per_class(nodes: &[u64], labels: &[i64], classes: usize, count: usize) -> [Vec<i64>; 3] {
    let mut seen = vec![0usize; classes];
    let mut parts = [Vec::new(), Vec::new(), Vec::new()];
    for node in nodes {
        let class = usize::try_from(labels[*node as usize]).unwrap_or(0);
        let before = seen[class];
        seen[class] += 1;
        // Half as many again to choose by.
        let part =
            if before < count { 0 } else { 1 + usize::from(before >= count + count.saturating_mul(3).div_ceil(2)) };
        parts[part].push(*node);
    }
    parts.map(|part| ascending(part.iter()))
}

fn ascending<'a>(nodes: impl Iterator<Item = &'a u64>) -> Vec<i64> {
    let mut ids: Vec<i64> = nodes.map(|node| *node as i64).collect();
    ids.sort_unstable();
    ids
}

#[cfg(test)]
pub(crate) mod tests {
    use graphweft_base::progress::Silent;
    use graphweft_model::encoding::Encodings;

    use super::*;
    use crate::config::DataConfig;
    use crate::task::{Labels, NodeLabels};

    const SPEC: &str = "sbm:200:4:6:f=8";

    /// A graph that is generated, with its features and labels.
    pub(crate) fn generated(spec: &str) -> Data {
        let config = DataConfig { graph: Some(spec.into()), ..Default::default() };
        Data::open(&config, &Encodings::default(), &Silent).unwrap()
    }

    #[test]
    fn shares_are_of_the_nodes_with_labels_and_follow_the_seed() {
        let mut data = generated(SPEC);
        if let Some(Labels::Integers(labels)) = &mut data.labels {
            labels[..100].fill(-1);
        }
        let split = data.split("random:60/20/20", 3).unwrap();
        let sizes = split.parts().map(|(_, ids)| ids.len());
        assert_eq!(sizes, [60, 20, 20]);
        assert!(split.parts().iter().all(|(_, ids)| ids.iter().all(|id| *id >= 100)), "labelled nodes only");
        let mut all: Vec<i64> = split.parts().iter().flat_map(|(_, ids)| ids.to_vec()).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 100, "no node twice");
        assert_eq!(split, data.split("random:60/20/20", 3).unwrap());
        assert_ne!(split.train, data.split("random:60/20/20", 4).unwrap().train);
        assert_eq!(data.split("random:10/10/5.5", 0).unwrap().parts().map(|(_, ids)| ids.len()), [10, 10, 6]);
    }

    #[test]
    fn every_class_gives_as_many_nodes() {
        let data = generated(SPEC);
        let split = data.split("random:10-per-class", 1).unwrap();
        let Some(Labels::Integers(labels)) = &data.labels else { panic!("classes") };
        let of = |ids: &[i64], class: i64| ids.iter().filter(|id| labels[**id as usize] == class).count();
        for class in 0..4 {
            assert_eq!((of(&split.train, class), of(&split.valid, class)), (10, 15), "class {class}");
        }
        assert_eq!(split.test.len(), 200 - 100);
    }

    #[test]
    fn what_cannot_be_drawn_is_refused() {
        for (name, part) in [
            ("random:60/20", "three shares"),
            ("random:60/20/30", "add up to 110"),
            ("random:60/0/20", "between 0 and 100"),
            ("random:60/x/20", "\"x\""),
            ("random:0-per-class", "nodes per class"),
            ("random:x-per-class", "nodes per class"),
            ("random:", "three shares"),
        ] {
            let message = RandomSplit::parse(name).unwrap().unwrap_err();
            assert!(message.contains(part), "{name}: {message}");
            assert!(generated(SPEC).split_name(Some(name)).is_err(), "{name}");
        }
        assert!(RandomSplit::parse("public").is_none());
        let message = generated(SPEC).split("random:100-per-class", 0).unwrap_err().to_string();
        assert!(
            message.contains("leaves no node for valid") || message.contains("leaves no node for test"),
            "{message}"
        );
        let mut several = generated(SPEC);
        several.task = &NodeLabels;
        several.labels = Some(Labels::Numbers(vec![1.0; 200 * several.classes]));
        let message = several.split("random:5-per-class", 0).unwrap_err().to_string();
        assert!(message.contains("several labels") && message.contains("60/20/20"), "{message}");
        assert_eq!(several.split("random:60/20/20", 0).unwrap().train.len(), 120);
    }
}
