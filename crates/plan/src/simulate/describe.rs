//! A graph by its statistics.

use std::str::FromStr;

use crate::error::Error;

/// The number of ranks that a given α is for.
const AT: f64 = 8.0;
/// How α grows where nobody says: in the middle of what METIS makes of eight real graphs between 8 and 64 parts, which
/// is from 0.38 to 1.29 (benches/plan/SIMULATE.md). Beyond 64 nobody has measured it.
const GROWTH: f64 = 0.44;
/// α on eight ranks where nobody says: between a web graph's 0.07 and a random graph's 3 or more.
const ALPHA: f64 = 0.5;

/// Hits where nobody says: R-MAT of 2¹⁹ and 2²⁰ nodes beside the 50 MB of an H200, rehearsed with its own order of
/// reads, has 0.63 to 0.84, in the middle 0.76; by epochs that were measured there, 0.80 to 0.95
/// (benches/plan/SIMULATE.md). A graph whose neighbours are thrown at random has 0.
const HITS: f64 = 0.75;

/// A graph by its statistics: `nodes=2.4e6,edges=1.2e8,features=100,classes=47,alpha=0.3`.
///
/// `alpha` is that of a partition for eight ranks; it grows with the power `growth` of the number of ranks, up to what
/// a random partition would need. `hits` is how much better caches do than if every row were read equally often: of the
/// reads that would miss then, the share that hits, because few rows are read most and neighbours are read together.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// Nodes.
    pub nodes: f64,
    /// Stored edges: both directions of undirected ones.
    pub edges: f64,
    /// Columns of the features.
    pub features: usize,
    /// Classes.
    pub classes: usize,
    /// Of rows that a cache would not have if all were read equally often, the share that it has.
    pub hits: f64,
    at_eight: f64,
    growth: f64,
}

impl Description {
    /// Rows of others that are needed, over the number of nodes, on so many ranks.
    pub fn alpha(&self, ranks: usize) -> f64 {
        let p = ranks as f64;
        // Thrown at random, a node's neighbours miss a part with probability (1 − 1/P)^degree.
        let random = (p - 1.0) * (1.0 - (1.0 - 1.0 / p).powf(self.edges / self.nodes));
        if ranks <= 1 { 0.0 } else { (self.at_eight * (p / AT).powf(self.growth)).min(random) }
    }

    /// What is assumed of it on so many ranks, in words.
    pub fn assumed(&self, ranks: usize) -> String {
        let (alpha, growth, hits) = (self.alpha(ranks), self.growth, 100.0 * self.hits);
        format!("α = {alpha:.2} (growth {growth:.2}), caches have {hits:.0} % of what they would miss at random")
    }
}

impl FromStr for Description {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |field: &str, problem: String, remedy: &str| Error::Description {
            field: field.into(),
            problem,
            remedy: remedy.into(),
        };
        let example = "write e.g. nodes=2.4e6,edges=1.2e8,features=100,classes=47,alpha=0.3";
        let (mut numbers, names) = ([None; 7], ["nodes", "edges", "features", "classes", "alpha", "growth", "hits"]);
        for part in text.split(',') {
            let (name, value) = part.split_once('=').ok_or_else(|| wrong(part, "there is no =".into(), example))?;
            let place = names.iter().position(|known| *known == name.trim());
            let place = place.ok_or_else(|| wrong(name, "there is no such number".into(), example))?;
            let number = value.trim().parse::<f64>().ok().filter(|x| x.is_finite() && *x >= 0.0);
            numbers[place] = Some(number.ok_or_else(|| wrong(name, format!("{value:?} is no count"), example))?);
        }
        let needed = |place: usize, most: f64| {
            let number = numbers[place].ok_or_else(|| wrong(names[place], "it is missing".into(), example))?;
            if (1.0..=most).contains(&number) {
                return Ok(number);
            }
            Err(wrong(names[place], format!("{number} is not between 1 and {most:e}"), example))
        };
        let hits = numbers[6].unwrap_or(HITS);
        if hits > 1.0 {
            return Err(wrong("hits", format!("{hits} is no share"), "give a number from 0 to 1"));
        }
        Ok(Self {
            nodes: needed(0, 1e12)?,
            edges: needed(1, 1e14)?,
            features: needed(2, 1e6)? as usize,
            classes: needed(3, 1e6)? as usize,
            hits,
            at_eight: numbers[4].unwrap_or(ALPHA),
            growth: numbers[5].unwrap_or(GROWTH),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_says_how_much_is_needed_of_others() {
        let graph: Description =
            "nodes=1e6,edges=2e7,features=100,classes=47,alpha=0.4,growth=0.333333333333".parse().unwrap();
        assert_eq!((graph.alpha(1), graph.alpha(8)), (0.0, 0.4));
        assert!((graph.alpha(64) - 0.8).abs() < 1e-9);
        // Never more than at random.
        let graph: Description = "nodes=1e6,edges=2e6,features=1,classes=2,alpha=50".parse().unwrap();
        assert!((graph.alpha(2) - 0.75).abs() < 1e-12);
        for (text, part) in [
            ("nodes=1", "edges"),
            ("nodes=1,edges=x,features=1,classes=1", "\"x\""),
            ("nodes=0,edges=1,features=1,classes=1", "nodes: 0"),
            ("size=3", "size"),
            ("nodes=1,edges=1,features=1,classes=1,hits=1.5", "hits: 1.5"),
            ("", "="),
        ] {
            let message = text.parse::<Description>().unwrap_err().to_string();
            assert!(message.contains(part) && message.contains("remedy"), "{message}");
        }
    }

    #[test]
    fn where_nobody_says_more_is_needed_by_many_parts_as_was_measured() {
        // α in 8 and 64 parts: cora, pubmed, coauthor-cs, amazon-photo, actor, minesweeper, law-cnr2000,
        // snap-web-google.
        let measured = [
            (0.346, 0.831),
            (0.435, 1.017),
            (0.861, 2.064),
            (1.621, 6.201),
            (1.506, 3.335),
            (0.095, 0.380),
            (0.115, 1.674),
            (0.042, 0.108),
        ];
        let graph: Description = "nodes=1e6,edges=2e7,features=100,classes=47,alpha=0.5".parse().unwrap();
        let ours = graph.alpha(64) / graph.alpha(8);
        let below = measured.iter().filter(|(eight, many)| many / eight < ours).count();
        assert_eq!(below, measured.len() / 2, "{ours} times as much in 64 parts as in 8");
    }
}
