//! The edges that Exphormer adds.

use graphweft_tensor::{DType, Device};

use super::{N, config, graph};

#[test]
fn an_expander_reaches_everyone_and_is_the_same_every_time() {
    let model = config("name = 'exphormer'\nexpander_degree = 3");
    let csr = graph();
    let prepared = model.prepare(csr.clone(), 5).unwrap();
    assert_eq!(prepared.csr, model.prepare(csr.clone(), 5).unwrap().csr);
    assert_ne!(prepared.csr, model.prepare(csr.clone(), 6).unwrap().csr);
    let kinds = prepared.features(&Device::cpu(), DType::F32).unwrap().unwrap().to_vec::<f32>().unwrap();
    let own = kinds.chunks(2).filter(|k| k[0] == 1.0).count();
    assert_eq!((own, kinds.len()), (csr.num_edges(), 2 * prepared.csr.num_edges()));
    assert!(kinds.chunks(2).all(|k| k[0] + k[1] == 1.0));
    let mut reached = vec![false; N];
    let mut queue = vec![0usize];
    while let Some(i) = queue.pop() {
        if !std::mem::replace(&mut reached[i], true) {
            let added = prepared.csr.edges_of(i).filter(|e| kinds[2 * e + 1] == 1.0);
            queue.extend(added.map(|e| prepared.csr.indices()[e] as usize));
        }
    }
    assert!(reached.iter().all(|x| *x));
    assert!((0..N).all(|i| prepared.csr.degree(i) - csr.degree(i) <= 6));
}
