//! A rehearsal takes what the CPU takes: the tests of operations ask [`takes_as_much`] for each of their cases.

use std::cell::RefCell;
use std::rc::Rc;

use super::{Pass, Reuse, Work, WorkKind};
use crate::device::Device;
use crate::dtype::DType;
use crate::ledger::Tag;
use crate::ops::activation::Activation;
use crate::ops::attention::{Bias, Score, attention};
use crate::ops::graphs::with_hub;
use crate::ops::linear::{Affine, linear};
use crate::ops::tests::{parameter, upload};
use crate::tape::Tape;

/// `run` asks for the same memory on the CPU and in a rehearsal: all together, and when most is in use.
pub(crate) fn takes_as_much<T>(what: &str, run: impl Fn(&Device) -> T) {
    let both = [Device::cpu(), Device::dry(None, Rc::new(|_| ()))].map(|device| {
        run(&device);
        (device.ledger().requested(), device.ledger().peak())
    });
    assert_eq!(both[0], both[1], "{what}: on the CPU and in a rehearsal");
}

/// A device with a list of what it was asked to do.
fn listening(capacity: Option<u64>) -> (Device, Rc<RefCell<Vec<Work>>>) {
    let heard = Rc::new(RefCell::new(Vec::new()));
    let list = Rc::clone(&heard);
    (Device::dry(capacity, Rc::new(move |work| list.borrow_mut().push(work))), heard)
}

#[test]
fn works_say_what_their_time_depends_on() {
    let (device, heard) = listening(None);
    let graph = with_hub(&device);
    let mut tape = Tape::new(&device);
    let layer = Affine { weight: parameter(&device, "w", (24, 7), DType::F32), bias: None };
    let x = tape.leaf(device.convert("test", &upload(&device, 1, (300, 7), 1.0), DType::F32).unwrap());
    let q = linear(&mut tape, &x, std::slice::from_ref(&layer), Activation::None, DType::F32).unwrap();
    let kv = linear(&mut tape, &x, &[layer.clone(), layer], Activation::None, DType::F32).unwrap();
    let out = attention(&mut tape, &graph, 3, Score::Dot { q: &q, kv: &kv }, Bias::None, None, None).unwrap();
    let seed = device.uninit("test", 300, 24, DType::F32, Tag::Activations).unwrap();
    tape.backward(vec![(out, seed)], &[&x], |_| Ok(())).unwrap();

    let works: Vec<Work> = heard.take().into_iter().filter(|w| !matches!(w.kind, WorkKind::Stream { .. })).collect();
    let edges = |pass| {
        let direction = if pass == Pass::BySource { &graph.transpose } else { &graph.forward };
        let fours = (0..300).map(|row| direction.csr.edges_of(row).len().div_ceil(4)).sum();
        let row = 4 * if pass == Pass::BySource { 2 * 24 + 2 * 3 } else { 2 * 24 };
        let (edges, reuse) = (graph.num_edges(), Some(Reuse::of(&direction.csr)));
        let kind = WorkKind::Edges { pass, edges, rows: 300, fours, sources: 300, row, reuse, width: 24, heads: 3 };
        Work { op: "attention", dtype: DType::F32, dropout: false, kind }
    };
    let gemm = |op, m, n, k| Work { op, dtype: DType::F32, dropout: false, kind: WorkKind::Gemm { m, n, k } };
    assert_eq!(works[..3], [gemm("linear", 300, 24, 7); 3]);
    assert_eq!(works[3..6], [Pass::Forward, Pass::ByDestination, Pass::BySource].map(edges));
    assert_eq!(works.len(), 12, "for each of three products dx and dW");
    assert!(works.contains(&gemm("linear dx", 300, 7, 24)) && works.contains(&gemm("linear dw", 24, 7, 300)));
}

#[test]
fn memory_ends_where_it_would_and_idle_blocks_are_given_back_first() {
    let (device, _) = listening(Some(1000));
    let take = |bytes: usize| device.uninit("test", bytes, 1, DType::F32, Tag::Activations);
    let held = take(150).unwrap();
    drop(take(75).unwrap());
    assert!(take(100).is_ok(), "300 idle bytes make room for 400");
    let e = take(101).unwrap_err().to_string();
    assert!(e.contains("404 more bytes") && e.contains("rehearsal"), "{e}");
    drop(held);
    assert!(take(250).is_ok());
}
