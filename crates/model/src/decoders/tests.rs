//! Gradients by finite differences, and the host beside the device.

use graphweft_tensor::gradcheck::{check, numbers};
use graphweft_tensor::{Device, Tag};

use super::losses::{Against, Partners, logistic, one_of_all, self_adversarial, some_of_all};
use super::*;

const ALL: [DecoderName; 6] = [
    DecoderName::Dot,
    DecoderName::Mlp,
    DecoderName::DistMult,
    DecoderName::ComplEx,
    DecoderName::TransE,
    DecoderName::RotatE,
];
const SHAPE: DecoderShape = DecoderShape { columns: 6, relations: 4, hidden: 5, layers: 3, margin: 2.0 };
const RELATIONS: [u32; 5] = [3, 0, 3, 1, 2];

fn built(name: DecoderName, device: &Device) -> Rc<dyn Decoder> {
    name.build(&Init::new(device, DType::F64, 7), &SHAPE).unwrap()
}

fn rows(device: &Device, seed: u64, count: usize) -> Matrix {
    device.upload(count, SHAPE.columns, &numbers(seed, count * SHAPE.columns), Tag::Activations).unwrap()
}

fn asked(given: &Var, missing: Missing) -> Asked<'_> {
    Asked { given, relations: &RELATIONS, missing, dropout: None }
}

#[test]
fn every_decoder_has_the_gradient_that_finite_differences_find() {
    gradients_of_all(&Device::cpu());
}

#[cfg(feature = "cuda")]
#[test]
#[ignore = "needs a GPU"]
fn every_decoder_has_its_gradient_on_a_gpu() {
    gradients_of_all(&Device::with_backend(Box::new(graphweft_tensor::cuda::Cuda::new(0).unwrap())));
}

fn gradients_of_all(device: &Device) {
    for name in ALL {
        let decoder = built(name, device);
        for missing in [Missing::Tail, Missing::Head] {
            check(device, &[rows(device, 1, 5), rows(device, 2, 5)], &decoder.parameters(), |tape, x| {
                let query = decoder.query(tape, asked(&x[0], missing))?;
                decoder.pairs(tape, &query, &x[1])
            })
            .unwrap();
        }
        let all = |tape: &mut Tape, x: &[Var]| {
            let query = decoder.query(tape, asked(&x[0], Missing::Tail))?;
            decoder.all(tape, &query, &x[1])
        };
        let found = check(device, &[rows(device, 1, 5), rows(device, 2, 9)], &decoder.parameters(), all);
        let compares_all = matches!(name, DecoderName::Dot | DecoderName::DistMult | DecoderName::ComplEx);
        assert_eq!(found.is_ok(), compares_all, "{name:?}");
    }
}

#[test]
fn the_host_scores_as_the_device_does_in_pieces_too() {
    let device = Device::cpu();
    let (given, partners) = (rows(&device, 1, 5), rows(&device, 2, 5));
    let [x, y] = [&given, &partners].map(|m| m.to_vec::<f64>().unwrap());
    let row = |of: &[f64], k: usize| of[k * SHAPE.columns..][..SHAPE.columns].to_vec();
    for name in ALL {
        let (decoder, mut tape) = (built(name, &device), Tape::without_gradients(&device));
        let host = decoder.on_host().unwrap();
        for missing in [Missing::Tail, Missing::Head] {
            let (a, b) = (tape.constant(given.clone()), tape.constant(partners.clone()));
            let query = decoder.query(&mut tape, asked(&a, missing)).unwrap();
            let found = decoder.pairs(&mut tape, &query, &b).unwrap().value().to_vec::<f64>().unwrap();
            for (k, found) in found.iter().enumerate() {
                let (query, partner) = (host.query(&row(&x, k), RELATIONS[k], missing), row(&y, k));
                let score = host.finish(host.add(0.0, &query, &partner));
                assert!((found - score).abs() < 1e-12, "{name:?} {missing:?}: {found} {score}");
                let lanes: Vec<[f64; LANES]> = query.iter().map(|x| std::array::from_fn(|l| x + l as f64)).collect();
                let mut sums = [0.5; LANES];
                host.add_lanes(&mut sums, &lanes, &partner);
                for (lane, sum) in sums.iter().enumerate() {
                    let one: Vec<f64> = lanes.iter().map(|column| column[lane]).collect();
                    assert_eq!(*sum, host.add(0.5, &one, &partner), "{name:?}");
                }
            }
        }
    }
}

/// A triple has one score, whichever end is asked for.
#[test]
fn both_directions_agree_on_a_triple() {
    let device = Device::cpu();
    let [x, y] = [1, 2].map(|seed| rows(&device, seed, 1).to_vec::<f64>().unwrap());
    for name in ALL {
        let host = built(name, &device).on_host().unwrap();
        let score = |given: &[f64], partner: &[f64], missing| {
            host.finish(host.add(0.0, &host.query(given, 2, missing), partner))
        };
        let [tail, head] = [score(&x, &y, Missing::Tail), score(&y, &x, Missing::Head)];
        assert!((tail - head).abs() < 1e-12, "{name:?}: {tail} {head}");
    }
}

#[test]
fn every_loss_has_the_gradient_that_finite_differences_find() {
    let device = Device::cpu();
    let up = |rows, cols| device.upload(rows, cols, &numbers(4, rows * cols), Tag::Activations).unwrap();
    fn against(scores: &Var) -> Against<'_> {
        Against { scores, links: 3, total: 5.0 }
    }
    check(&device, &[up(12, 1)], &[], |tape, x| logistic(tape, against(&x[0]))).unwrap();
    // With temperature 0 all weights are the same, and do not change with the scores.
    check(&device, &[up(12, 1)], &[], |tape, x| self_adversarial(tape, against(&x[0]), 0.0)).unwrap();
    check(&device, &[up(3, 7)], &[], |tape, x| one_of_all(tape, &x[0], &[2, 0, 6].into(), 4.0)).unwrap();
    let of = [vec![1, 4], vec![], vec![6]];
    for smoothing in [0.0, 0.2] {
        check(&device, &[up(3, 7)], &[], |tape, x| some_of_all(tape, &x[0], Partners { of: &of, smoothing }, 21.0))
            .unwrap();
    }
}

#[test]
fn losses_are_those_of_their_formulas() {
    let device = Device::cpu();
    let s = numbers(4, 12);
    let mut tape = Tape::without_gradients(&device);
    let x = tape.constant(device.upload(12, 1, &s, Tag::Activations).unwrap());
    let softplus = |x: f64| (1.0 + x.exp()).ln();
    let a = Against { scores: &x, links: 3, total: 5.0 };
    let found = |loss: Var| loss.value().to_vec::<f64>().unwrap()[0];
    let links: f64 = s[..3].iter().map(|s| softplus(-s)).sum();
    let plain: f64 = s[3..].iter().map(|s| softplus(*s) / 3.0).sum();
    assert!((found(logistic(&mut tape, a).unwrap()) - (links + plain) / 5.0).abs() < 1e-7);
    let adversarial: f64 = s[3..]
        .chunks(3)
        .map(|of| {
            let all: f64 = of.iter().map(|s| (2.0 * s).exp()).sum();
            of.iter().map(|s| (2.0 * s).exp() / all * softplus(*s)).sum::<f64>()
        })
        .sum();
    assert!((found(self_adversarial(&mut tape, a, 2.0).unwrap()) - (links + adversarial) / 5.0).abs() < 1e-12);
    let odd = Against { links: 5, ..a };
    assert!(logistic(&mut tape, odd).is_err() && self_adversarial(&mut tape, odd, 1.0).is_err());
}

#[test]
fn rows_that_cannot_be_complex_are_refused() {
    let device = Device::cpu();
    for name in [DecoderName::ComplEx, DecoderName::RotatE] {
        let odd = DecoderShape { columns: 7, ..SHAPE };
        let message = name.build(&Init::new(&device, DType::F64, 7), &odd).err().unwrap().to_string();
        assert!(message.contains("even") && message.contains('7'), "{message}");
    }
}
