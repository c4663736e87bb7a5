//! Ten training steps of every decoder and loss against PyTorch's, in f64. `make_decoders.py` made the numbers, and
//! says what is learned.

use std::rc::Rc;

use graphweft_model::Init;
use graphweft_model::decoders::losses::{Against, Partners, logistic, one_of_all, self_adversarial, some_of_all};
use graphweft_model::decoders::{Asked, Decoder, DecoderName, DecoderShape, Missing};
use graphweft_tensor::ops::combine::concat;
use graphweft_tensor::ops::reshape::reshape;
use graphweft_tensor::ops::rows::{RowIndex, gather};
use graphweft_tensor::optim::{Optimizer, Rule};
use graphweft_tensor::{DType, Device, Matrix, Parameter, Result, Tag, Tape, Var};

use super::{STEPS, State, f64s, folder, gpu, near, state};

const NODES: usize = 9;
const SHAPE: DecoderShape = DecoderShape { columns: 6, relations: 4, hidden: 5, layers: 3, margin: 3.0 };

/// Head, relation and tail.
fn triples() -> [Vec<u32>; 3] {
    let all = 0..12u32;
    [
        all.clone().map(|k| k % 9).collect(),
        all.clone().map(|k| k * 5 % 4).collect(),
        all.map(|k| (k * k + 3) % 9).collect(),
    ]
}

struct Learned<'a> {
    decoder: &'a dyn Decoder,
    rows: Var,
}

impl Learned<'_> {
    fn of(&self, tape: &mut Tape, ids: &[u32]) -> Result<Var> {
        let index = Rc::new(RowIndex::new(&tape.device().clone(), NODES, ids.to_vec())?);
        gather(tape, &self.rows, &index)
    }

    fn query(&self, tape: &mut Tape, given: &[u32], missing: Missing) -> Result<Var> {
        let (given, [_, relations, _]) = (self.of(tape, given)?, triples());
        self.decoder.query(tape, Asked { given: &given, relations: &relations, missing, dropout: None })
    }

    /// Scores of links, then of the pairs against each.
    fn scores(&self, tape: &mut Tape) -> Result<Var> {
        let [h, _, t] = triples();
        let other = |ids: &[u32], by: u32| ids.iter().map(|id| (id + by) % 9).collect::<Vec<u32>>();
        let [from_head, from_tail] =
            [(&h, Missing::Tail), (&t, Missing::Head)].map(|(of, missing)| self.query(tape, of, missing));
        let (from_head, from_tail) = (from_head?, from_tail?);
        let mut score = |query: &Var, partners: &[u32]| -> Result<Var> {
            let partners = self.of(tape, partners)?;
            self.decoder.pairs(tape, query, &partners)
        };
        let links = score(&from_head, &t)?;
        let against = [score(&from_head, &other(&t, 4))?, score(&from_tail, &other(&h, 2))?];
        // The two of a link stand one after the other.
        let against = concat(tape, &[&against[0], &against[1]])?;
        let against = reshape(tape, &against, 24, 1)?;
        let both = [reshape(tape, &links, 1, 12)?, reshape(tape, &against, 1, 24)?];
        let both = concat(tape, &[&both[0], &both[1]])?;
        reshape(tape, &both, 36, 1)
    }

    fn loss(&self, tape: &mut Tape, name: &str) -> Result<Var> {
        let [h, _, t] = triples();
        let mut all = |given: &[u32], missing| {
            let query = self.query(tape, given, missing)?;
            self.decoder.all(tape, &query, &self.rows)
        };
        let class = |of: &[u32]| of.iter().map(|id| i64::from(*id)).collect::<Rc<[i64]>>();
        match name {
            "one" => {
                let [tails, heads] = [all(&h, Missing::Tail)?, all(&t, Missing::Head)?];
                let tails = one_of_all(tape, &tails, &class(&t), 24.0)?;
                let heads = one_of_all(tape, &heads, &class(&h), 24.0)?;
                graphweft_tensor::ops::combine::combine(tape, 1.0, &tails, 1.0, &heads)
            }
            "some" => {
                let tails = all(&h, Missing::Tail)?;
                let of: Vec<Vec<u32>> = t.iter().map(|tail| vec![*tail]).collect();
                some_of_all(tape, &tails, Partners { of: &of, smoothing: 0.1 }, 12.0 * NODES as f64)
            }
            _ => {
                let scores = self.scores(tape)?;
                let a = Against { scores: &scores, links: 12, total: 12.0 };
                if name == "adversarial" { self_adversarial(tape, a, 0.7) } else { logistic(tape, a) }
            }
        }
    }
}

fn matrix(device: &Device, from: &State, name: &str, [rows, cols]: [usize; 2]) -> Matrix {
    device.upload(rows, cols, &from[name].1, Tag::Parameters).unwrap()
}

fn check(name: DecoderName, file: &str, loss: &str, device: &Device) {
    let from = state(folder("decoders").join(format!("{file}-{loss}.safetensors")));
    let decoder = name.build(&Init::new(device, DType::F64, 1), &SHAPE).unwrap();
    let rows = Parameter::new("rows", matrix(device, &from, "initial.rows", [NODES, SHAPE.columns]));
    let mut parameters = decoder.parameters();
    for p in &parameters {
        let (rows, cols) = p.value().shape();
        let m = matrix(device, &from, &format!("initial.{}", p.name()), [rows, cols]);
        p.update(|value| {
            *value = m;
            Ok(())
        })
        .unwrap();
    }
    parameters.push(Rc::clone(&rows));
    let mut optimizer = Optimizer::new(Rule::adam(0.0), &parameters).unwrap();
    for step in 0..STEPS as usize {
        let mut tape = Tape::new(device);
        let learned = Learned { decoder: &*decoder, rows: tape.parameter(&rows) };
        let value = learned.loss(&mut tape, loss).unwrap();
        near(&format!("{file} {loss} {step}"), &f64s(value.value()), &from["losses"].1[step..=step]);
        let one = device.upload(1, 1, &[1.0], Tag::Activations).unwrap();
        drop(learned);
        tape.backward(vec![(value, one)], &[], |_| Ok(())).unwrap();
        optimizer.step(0.05, 1.0).unwrap();
    }
    for p in &parameters {
        near(&format!("{file} {loss} {}", p.name()), &f64s(&p.value()), &from[&format!("final.{}", p.name())].1);
    }
}

fn check_all(device: &Device) {
    for (name, file) in [
        (DecoderName::Dot, "dot"),
        (DecoderName::Mlp, "mlp"),
        (DecoderName::DistMult, "distmult"),
        (DecoderName::ComplEx, "complex"),
        (DecoderName::TransE, "transe"),
        (DecoderName::RotatE, "rotate"),
    ] {
        let compares_all = matches!(file, "dot" | "distmult" | "complex");
        let losses = ["logistic", "adversarial", "one", "some"];
        losses.iter().take(if compares_all { 4 } else { 2 }).for_each(|loss| check(name, file, loss, device));
    }
}

#[test]
fn every_decoder_learns_by_every_loss_as_in_pytorch() {
    check_all(&Device::cpu());
}

#[test]
#[ignore = "needs a GPU"]
fn every_decoder_learns_by_every_loss_as_in_pytorch_on_a_gpu() {
    check_all(&gpu());
}
