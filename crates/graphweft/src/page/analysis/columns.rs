//! Tasks with several numbers per node or graph: labels that are there or not, and targets to be met.

use serde_json::{Value, json};

use super::Rows;

/// More points hide each other.
const MOST_POINTS: usize = 1500;

/// What is true of an item beside what was predicted; nothing where the truth is not known.
fn pairs<'r>(
    rows: &'r Rows<'_>,
    truth: &'r [f32],
    column: usize,
    items: &'r [usize],
) -> impl Iterator<Item = (f64, f64)> + 'r {
    let of = move |item: &usize| (truth[item * rows.columns + column], rows.of(*item)[column]);
    items.iter().map(of).filter(|(y, _)| !y.is_nan()).map(|(y, x)| (f64::from(y), f64::from(x)))
}

/// What a column is called.
fn name(names: Option<&[String]>, column: usize) -> String {
    names.and_then(|names| names.get(column)).filter(|name| !name.is_empty()).cloned().unwrap_or(column.to_string())
}

/// How many items have a label, how many were said to have it, and how many of these do.
#[derive(Clone, Copy, Default)]
struct Counts {
    there: u64,
    said: u64,
    hit: u64,
}

impl Counts {
    fn of(pairs: impl Iterator<Item = (f64, f64)>) -> Self {
        pairs.fold(Self::default(), |all, (y, x)| {
            let (there, said) = (y > 0.5, x > 0.0);
            Self {
                there: all.there + u64::from(there),
                said: all.said + u64::from(said),
                hit: all.hit + u64::from(there && said),
            }
        })
    }

    /// The F1 score, in per cent.
    fn f1(self) -> Option<f64> {
        let all = self.there + self.said;
        (all > 0).then(|| 200.0 * self.hit as f64 / all as f64)
    }
}

/// Of a task with several labels per item, each there or not: a logit above 0 says that it is.
pub(super) fn labels(rows: &Rows<'_>, truth: &[f32], names: Option<&[String]>) -> Value {
    let labels = (0..rows.columns).map(|column| {
        let Counts { there, said, hit } = Counts::of(pairs(rows, truth, column, &rows.test));
        json!({"name": name(names, column), "there": there, "said": said, "hit": hit})
    });
    let f1 = |items: &[usize]| Counts::of((0..rows.columns).flat_map(|k| pairs(rows, truth, k, items))).f1();
    json!({
        "items": rows.of.noun(), "tested": rows.test.len(), "labels": labels.collect::<Vec<_>>(),
        "groups": rows.grouped("F1 over all labels of", "%", f1),
    })
}

/// Of a task with numbers to predict.
pub(super) fn targets(rows: &Rows<'_>, truth: &[f32], names: Option<&[String]>) -> Value {
    let target = |column: usize| {
        let all: Vec<(f64, f64)> = pairs(rows, truth, column, &rows.test).collect();
        let mean = |of: fn(&(f64, f64)) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
        // Every so many: as many as can be seen, by a rule that does not look at them.
        let points: Vec<[f64; 2]> =
            all.iter().step_by(all.len().div_ceil(MOST_POINTS).max(1)).map(|(y, x)| [*y, *x]).collect();
        json!({
            "name": name(names, column), "known": all.len(), "points": points,
            "mean": mean(|(y, _)| *y), "mae": mean(|(y, x)| (x - y).abs()), "bias": mean(|(y, x)| x - y),
            "rmse": mean(|(y, x)| (x - y).powi(2)).sqrt(),
        })
    };
    let mae = |items: &[usize]| {
        let all: Vec<f64> =
            (0..rows.columns).flat_map(|k| pairs(rows, truth, k, items)).map(|(y, x)| (x - y).abs()).collect();
        (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
    };
    json!({
        "items": rows.of.noun(), "tested": rows.test.len(), "targets": (0..rows.columns).map(target).collect::<Vec<_>>(),
        "groups": rows.grouped("Mean absolute error of", "", mae),
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Items, Type};
    use super::*;

    /// Node types, where they are asked for.
    static TYPES: std::sync::LazyLock<[Type; 2]> =
        std::sync::LazyLock::new(|| [("a", 0..1), ("b", 1..3)].map(|(name, nodes)| Type { name: name.into(), nodes }));

    /// Of three nodes with one neighbour, one and none.
    fn rows(outputs: &[f32], columns: usize) -> Rows<'_> {
        Rows { of: Items::Nodes, sizes: vec![1, 1, 0], types: &[], outputs, columns, test: vec![0, 1, 2] }
    }

    #[test]
    fn labels_are_counted_where_they_are_known() {
        let rows = rows(&[1.0, -1.0, 1.0, 1.0, -1.0, 1.0], 2);
        let found = labels(&rows, &[1.0, 0.0, 0.0, 1.0, 1.0, f32::NAN], Some(&["a".into()]));
        assert_eq!(found["labels"][0], json!({"name": "a", "there": 2, "said": 2, "hit": 1}));
        assert_eq!(found["labels"][1], json!({"name": "1", "there": 1, "said": 1, "hit": 1}));
        let groups = &found["groups"][0];
        assert_eq!(groups["title"], "F1 over all labels of test nodes, by number of neighbours");
        assert_eq!(groups["rows"][0], json!({"name": "0", "count": 1, "score": 0.0}));
        assert_eq!(groups["rows"][1], json!({"name": "1", "count": 2, "score": 80.0}));
        assert_eq!(found["groups"][1], Value::Null);
    }

    #[test]
    fn targets_are_compared_where_they_are_known() {
        let rows = Rows { types: TYPES.as_slice(), ..rows(&[1.0, 4.0, 9.0], 1) };
        let found = targets(&rows, &[2.0, 2.0, f32::NAN], None);
        let one = &found["targets"][0];
        assert_eq!((&one["mae"], &one["bias"], &one["mean"]), (&json!(1.5), &json!(0.5), &json!(2.0)));
        assert_eq!(one["points"], json!([[2.0, 1.0], [2.0, 4.0]]));
        assert_eq!(one["rmse"], json!(2.5f64.sqrt()));
        assert_eq!(found["groups"][0]["rows"][0]["score"], Value::Null);
        let by_type = &found["groups"][1];
        assert_eq!(by_type["title"], "Mean absolute error of test nodes, by type");
        assert_eq!(by_type["rows"][0], json!({"name": "a", "count": 1, "score": 1.0}));
        assert_eq!(by_type["rows"][1], json!({"name": "b", "count": 2, "score": 2.0}));
    }
}
