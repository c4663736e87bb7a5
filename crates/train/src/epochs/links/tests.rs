//! The loss of a step beside its formula, and ranks beside a reference that sorts.

use graphweft_graph::dataset::LinkSplit;
use graphweft_model::decoders::Missing;
use graphweft_tensor::gradcheck::{check, numbers};
use graphweft_tensor::{DType, Device, Error as Computed, Tag};

use super::known::Link;
use super::others::Key;
use super::ranking::Ranking;
use super::*;
use crate::epochs::learner::{Draw, Objective};

const WIDTH: usize = 4;

/// Links among seven nodes: pairs, or triples of two relations.
fn links(device: &Device, train: &[i64], width: usize, change: impl FnOnce(&mut LinkConfig)) -> Links {
    let none = || Vec::new().into();
    let mut config = LinkConfig::default();
    change(&mut config);
    let split = LinkSplit {
        name: "own".into(),
        width,
        train: train.to_vec().into(),
        valid: none(),
        test: none(),
        valid_neg: None,
        test_neg: None,
    };
    let trained = Known::of(&[train], width);
    Links {
        config,
        nodes: 7,
        relations: if width == 3 { 2 } else { 0 },
        places: Places(None),
        own_ids: (0..7).collect(),
        others: Others::new(7, if width == 2 { train } else { &[] }),
        negatives: 3,
        questions: trained.questions(),
        known: Known::of(&[train], width),
        trained,
        dropout: 0.0,
        rank: Rank::alone(device),
        counts: [7].into(),
        split,
    }
}

fn decoder(device: &Device, links: &Links) -> Rc<dyn Decoder> {
    let directions = if links.config.reciprocal { 2 } else { 1 };
    let shape = DecoderShape {
        columns: WIDTH,
        relations: directions * links.relations.max(1),
        hidden: WIDTH,
        layers: 2,
        margin: 1.0,
    };
    links.config.decoder(links.relations).build(&Init::new(device, DType::F64, 3), &shape).unwrap()
}

/// The loss of all that is learned from, whose gradient is looked at.
fn loss_of(links: &Links, device: &Device, values: &[f64]) -> f64 {
    let decoder = decoder(device, links);
    let order = links.order(0, 1, None);
    let step = Step { links, decoder: &*decoder, lot: &order };
    let z = device.upload(7, WIDTH, values, Tag::Activations).unwrap();
    let draw = Draw { seed: 3, epoch: 2 };
    let loss = |tape: &mut Tape, x: &[Var]| {
        let failed = |e: Error| Computed::Argument { op: "links", problem: e.to_string() };
        step.loss(tape, &x[0], draw).map_err(failed)
    };
    check(device, std::slice::from_ref(&z), &decoder.parameters(), loss).unwrap();
    let mut tape = Tape::without_gradients(device);
    let x = tape.constant(z);
    step.loss(&mut tape, &x, draw).unwrap().value().to_vec::<f64>().unwrap()[0]
}

fn softplus(x: f64) -> f64 {
    (1.0 + x.exp()).ln()
}

fn product(values: &[f64], [i, j]: [u64; 2]) -> f64 {
    let row = |i: u64| &values[i as usize * WIDTH..][..WIDTH];
    row(i).iter().zip(row(j)).map(|(a, b)| a * b).sum()
}

#[test]
fn the_loss_is_the_mean_over_links_plus_the_mean_over_pairs_against_them_with_its_gradient() {
    let device = Device::cpu();
    let train = [0, 1, 1, 2, 3, 4, 0, 4];
    let links = links(&device, &train, 2, |_| {});
    let values = numbers(5, 7 * WIDTH);
    let found = loss_of(&links, &device, &values);
    let positive: f64 = train.chunks(2).map(|p| softplus(-product(&values, [p[0] as u64, p[1] as u64]))).sum();
    let draw = Draw { seed: 3, epoch: 2 };
    let keys = (0..4).flat_map(|link| (0..3).map(move |k| Key { draw, link, k }));
    let others: f64 = keys.map(|key| softplus(product(&values, links.others.drawn(key)))).sum();
    let wanted = positive / 4.0 + others / 12.0;
    // Weights of pairs are f32.
    assert!((found - wanted).abs() < 1e-7, "{found} {wanted}");
}

#[test]
fn the_loss_over_all_pairs_is_that_of_a_gae() {
    let device = Device::cpu();
    let links = links(&device, &[0, 1, 1, 2, 3, 4, 0, 4], 2, |link| link.loss = LinkLoss::AllPairs);
    let values = numbers(5, 7 * WIDTH);
    let is_link = |i: u64, j: u64| i == j || [[0, 1], [1, 2], [3, 4], [0, 4]].contains(&[i.min(j), i.max(j)]);
    let (mut sum, count) = (0.0, (7 + 8) as f64);
    for (i, j) in (0..7).flat_map(|i| (0..7).map(move |j| (i, j))) {
        let score = product(&values, [i, j]);
        sum += if is_link(i, j) { (49.0 - count) / count * softplus(-score) } else { softplus(score) };
    }
    let wanted = sum / (2.0 * (49.0 - count));
    let found = loss_of(&links, &device, &values);
    assert!((found - wanted).abs() < 1e-12, "{found} {wanted}");
}

#[test]
fn every_loss_of_triples_has_its_gradient() {
    let device = Device::cpu();
    let train = [0, 0, 1, 1, 1, 2, 3, 0, 4, 0, 1, 4, 0, 0, 5];
    let values = numbers(5, 7 * WIDTH);
    for loss in [LinkLoss::Logistic, LinkLoss::OneOfAll, LinkLoss::SomeOfAll] {
        for reciprocal in [false, true] {
            let links = links(&device, &train, 3, |link| (link.loss, link.reciprocal) = (loss, reciprocal));
            assert!(loss_of(&links, &device, &values) > 0.0);
        }
    }
    let draws = |link: &mut LinkConfig| link.variational = true;
    let drawn = links(&device, &[0, 1, 1, 2], 2, draws);
    // Half of the columns are deviations.
    let halves = DecoderShape { columns: 2, relations: 1, hidden: 1, layers: 1, margin: 1.0 };
    let decoder = DecoderName::Dot.build(&Init::new(&device, DType::F64, 3), &halves).unwrap();
    let step = Step { links: &drawn, decoder: &*decoder, lot: &[0, 1] };
    let z = device.upload(7, WIDTH, &values, Tag::Activations).unwrap();
    let loss = |tape: &mut Tape, x: &[Var]| {
        let failed = |e: Error| Computed::Argument { op: "links", problem: e.to_string() };
        step.loss(tape, &x[0], Draw { seed: 3, epoch: 2 }).map_err(failed)
    };
    check(&device, &[z], &[], loss).unwrap();
}

/// Numbers of which many are the same, so that scores are tied.
fn few(seed: u64, len: usize) -> Vec<f64> {
    numbers(seed, len).iter().map(|x| (2.0 * x).round()).collect()
}

#[test]
fn ranks_are_those_of_a_reference_with_ties_and_filters() {
    let device = Device::cpu();
    let nodes = 150;
    let rows = device.upload(nodes, WIDTH, &few(1, nodes * WIDTH), Tag::Activations).unwrap();
    let link = |k: u64| [(k * 7 % 150) as i64, (k % 2) as i64, (k * k * 11 % 150) as i64];
    let all: Vec<i64> = (0..700).flat_map(link).collect();
    let known = Known::of(&[&all], 3);
    let decoder = decoder(&device, &links(&device, &[0, 0, 1], 3, |_| {}));
    let relations = &decoder.parameters()[0];
    relations
        .update(|value| {
            *value = device.upload(2, WIDTH, &few(9, 2 * WIDTH), Tag::Parameters).unwrap();
            Ok(())
        })
        .unwrap();
    let host = decoder.on_host().unwrap();
    let places = Places(None);
    let rank = Rank::alone(&device);
    let counts = [nodes];
    let ranking = Ranking {
        rank: &rank,
        places: &places,
        counts: &counts,
        known: &known,
        decoder: &*host,
        reciprocal: None,
        watch: None,
    };
    let asked = (0..700).map(|k| Link::of(&all, 3, k));
    let questions: Vec<Question> = asked.flat_map(|l| [Missing::Tail, Missing::Head].map(|m| l.ask(m))).collect();
    let found = ranking.ranks(&rows, &questions).unwrap();
    let (z, r) = (few(1, nodes * WIDTH), few(9, 2 * WIDTH));
    let mut ties = 0;
    for (question, found) in questions.iter().zip(found) {
        let score = |other: u64| -> f64 {
            let of = |c: usize| {
                z[question.given as usize * WIDTH + c]
                    * r[question.relation as usize * WIDTH + c]
                    * z[other as usize * WIDTH + c]
            };
            (0..WIDTH).map(of).sum()
        };
        let is_known = |other: u64| {
            all.chunks(3).any(|t| {
                let [given, partner] = if question.missing == Missing::Tail { [t[0], t[2]] } else { [t[2], t[0]] };
                [given as u64, t[1] as u64, partner as u64] == [question.given, question.relation.into(), other]
            })
        };
        let others: Vec<f64> = (0..nodes as u64).filter(|other| !is_known(*other)).map(score).collect();
        let right = score(question.partner);
        // As OGB's evaluator: the mean of the optimistic and the pessimistic rank.
        let optimistic = others.iter().filter(|s| **s > right).count();
        let pessimistic = others.iter().filter(|s| **s >= right).count();
        assert_eq!(found, 0.5 * (optimistic + pessimistic) as f64 + 1.0);
        ties += pessimistic - optimistic;
    }
    assert!(ties > 1000, "{ties}");
}

#[test]
fn an_order_has_each_link_once_and_is_another_in_each_epoch() {
    let device = Device::cpu();
    let train: Vec<i64> = (0..50).flat_map(|k| [k % 7, (k + 1) % 7]).collect();
    let links = links(&device, &train, 2, |_| {});
    let all: Vec<u32> = (0..50).collect();
    assert_eq!(links.order(0, 1, None), all);
    let [first, second] = [1, 2].map(|epoch| links.order(0, epoch, Some(8)));
    assert!(first != second && first != all);
    assert_eq!(links.order(0, 1, Some(9)), first);
    let mut sorted = first.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, all);
}
