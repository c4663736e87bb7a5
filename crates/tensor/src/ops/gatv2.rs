//! GATv2: attention whose score looks at all columns of both ends of an edge.
//!
//! e_ij = a·LeakyReLU(l_i + r_j) per head, with l and r linear functions of the nodes' rows and a parameter a; α =
//! softmax over j (with bias and dropout as in [`attention`](crate::ops::attention)), out_i = Σ α_ij r_j, or Σ α_ij v_j
//! where values are given.
//!
//! Where edges have features e_ij, W·e_ij stands in the sum too, with a row of W per column. It is made in registers,
//! each time it is needed: d operations per edge and feature, d alone per column of categories, and no row per edge.
//!
//! Its operands are those of [`Score::Gatv2`](crate::ops::attention::Score::Gatv2): l has a row per destination, r and
//! values one per source, all of d columns, which the heads share equally; a is H × d/H, in the type of the
//! computation.
//!
//! Backward recomputes the scores: dl_i and da by destination, dr_j (and dv_j) by source.

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use crate::adjacency::Adjacency;
    use crate::device::Device;
    use crate::dtype::DType;
    use crate::error::Result;
    use crate::gradcheck::check;
    use crate::ops::attention::{Bias, EdgeDropout, Score, attention};
    use crate::ops::graphs::InputType::{Computed, Stored};
    use crate::ops::graphs::{
        Case, cases_agree_with_f64, dense_attention, dropout, empty, f64s, near, same_bits_over_a_hub, small, upload,
        with_hub,
    };
    use crate::ops::tests::on_every_device;
    use crate::tape::{Tape, Var};

    on_every_device!(gradients, equals_dense_softmax_in_f64);

    /// x: l, r, a, then a bias per edge, then values, as far as they are given.
    fn run(tape: &mut Tape, graph: &Rc<Adjacency>, x: &[Var], drop: Option<EdgeDropout>) -> Result<Var> {
        let bias = x.get(3).map_or(Bias::None, Bias::PerEdge);
        let score = Score::Gatv2 { l: &x[0], r: &x[1], value: x.get(4), a: &x[2], slope: 0.2 };
        attention(tape, graph, x[2].value().rows(), score, bias, None, drop)
    }

    fn gradients(device: &Device) {
        for graph in [vec![small(device)], empty(device).to_vec()].concat() {
            let (n, m) = (graph.num_dst(), graph.num_src());
            for (heads, inputs, drop) in [(1, 3, false), (2, 3, true), (3, 4, false), (2, 5, true)] {
                let d = 2 * heads;
                let shapes = [(n, d), (m, d), (heads, 2), (graph.num_edges(), heads), (m, d)];
                let up = |(k, shape): (usize, &_)| upload(device, k as u64 + 1, *shape, DType::F64);
                let inputs: Vec<_> = shapes[..inputs].iter().enumerate().map(up).collect();
                check(device, &inputs, &[], |tape, x| run(tape, &graph, x, drop.then(|| dropout(&graph)))).unwrap();
            }
        }
    }

    fn equals_dense_softmax_in_f64(device: &Device) {
        let (graph, heads, w) = (small(device), 2, 3);
        let inputs: Vec<_> = [(5, 6), (6, 6), (2, 3), (12, 2), (6, 6)]
            .into_iter()
            .enumerate()
            .map(|(k, shape)| upload(device, k as u64, shape, DType::F64))
            .collect();
        for given in [4, 5] {
            let mut tape = Tape::new(device);
            let vars: Vec<Var> = inputs[..given].iter().map(|m| tape.leaf(m.clone())).collect();
            let out = run(&mut tape, &graph, &vars, Some(dropout(&graph))).unwrap();
            let [l, r, a, bias] = [0, 1, 2, 3].map(|k| f64s(&inputs[k]));
            let values = f64s(&inputs[if given == 5 { 4 } else { 1 }]);
            let expected = dense_attention(&graph, heads, &values, Some(&dropout(&graph)), |e, j, i, h| {
                let column = |c: usize| {
                    let x = l[i * 6 + h * w + c] + r[j * 6 + h * w + c];
                    a[h * w + c] * (x.max(0.0) + 0.2 * x.min(0.0))
                };
                (0..w).map(column).sum::<f64>() + bias[e * heads + h]
            });
            near(&f64s(out.value()), &expected, 1e-12, "out");
        }
    }

    /// With tolerances for f32 and bf16.
    fn cases(check: impl Fn(&Case<'_>, &str, f64, f64)) {
        let edges = with_hub(&Device::cpu()).num_edges();
        for (heads, width) in [(8, 16), (3, 8), (1, 32), (2, 5), (5, 16), (9, 8)] {
            // Heads that are not whole vectors are served by portable code, which adds up a hub's edges one after
            // another.
            let single = if width % 8 == 0 { 2e-5 } else { 1e-4 };
            for (given, drop) in [(3, false), (5, true)] {
                let (n, c) = (300, heads * width);
                let row = (n, c, Stored);
                let all = [row, row, (heads, width, Computed), (edges, heads, Computed), row];
                let f = &|tape: &mut Tape, graph: &Rc<Adjacency>, x: &[Var]| {
                    run(tape, graph, x, drop.then(|| dropout(graph)))
                };
                let case = Case { graph: &with_hub, inputs: &all[..given], f };
                check(&case, &format!("{heads}×{width}, {given} given"), single, 3e-2);
            }
        }
    }

    cases_agree_with_f64!(cases);

    #[test]
    fn the_same_bits_for_any_number_of_threads() {
        let (edges, row) = (with_hub(&Device::cpu()).num_edges(), (300, 64, Stored));
        let inputs = [row, row, (4, 16, Computed), (edges, 4, Computed)];
        same_bits_over_a_hub("gatv2", &inputs, |tape, graph, x| run(tape, graph, x, Some(dropout(graph))));
    }

    #[test]
    fn nonsense_is_refused() {
        let device = Device::cpu();
        let graph = small(&device);
        let mut tape = Tape::new(&device);
        let mut leaf = |rows, cols, dtype| tape.leaf(upload(&device, 1, (rows, cols), dtype));
        let (l, r, a) = (leaf(5, 4, DType::F32), leaf(6, 4, DType::F32), leaf(2, 2, DType::F32));
        let (odd, half) = (leaf(3, 2, DType::F32), leaf(2, 2, DType::Bf16));
        let mut run = |l, r, value, a: &Var| {
            let score = Score::Gatv2 { l, r, value, a, slope: 0.2 };
            attention(&mut tape, &graph, a.value().rows(), score, Bias::None, None, None)
        };
        assert!(run(&l, &r, None, &a).is_ok());
        assert!(run(&r, &l, None, &a).is_err());
        assert!(run(&l, &r, Some(&l), &a).is_err());
        assert!(run(&l, &r, None, &odd).is_err());
        assert!(run(&l, &r, None, &half).is_err());
    }
}
