//! GAT: attention whose score is a sum of two numbers, one per node at each end of an edge.
//!
//! e_ij = LeakyReLU(l_i + r_j) per head, with l = z·a_dst and r = z·a_src computed beforehand (a linear layer to H
//! columns each), α = softmax over j (with bias and dropout as in [`attention`](crate::ops::attention)), out_i = Σ α_ij
//! z_j.
//!
//! Where edges have features e_ij, a number u_h·e_ij stands in the sum too, with a row u_h per head: H operations per
//! edge and feature. PyTorch Geometric's `GATConv` has a_h·(W_h·e_ij) there, which is the same with u_h = W_hᵀ·a_h.
//!
//! Its operands are those of [`Score::Gat`](crate::ops::attention::Score::Gat): l has a row per destination, r and z
//! one per source; l and r, in the type of the computation, have a column per head, and the heads share z's equally.
//!
//! l and r are operands of their own: to score an edge elsewhere than where its destination lives, only H numbers of
//! the destination travel. Backward gives dl, dr and dz: the score's part of the gradient goes on through the layers
//! that made l and r.

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

    on_every_device!(gradients, gradients_with_edge_features, equals_dense_softmax_in_f64);

    /// x: l, r, z and a bias per edge or an edge weight.
    fn run(tape: &mut Tape, graph: &Rc<Adjacency>, x: &[Var], drop: Option<EdgeDropout>) -> Result<Var> {
        let bias = x.get(3).map_or(Bias::None, Bias::PerEdge);
        let score = Score::Gat { l: &x[0], r: &x[1], z: &x[2], slope: 0.2 };
        attention(tape, graph, x[0].value().cols(), score, bias, None, drop)
    }

    fn gradients(device: &Device) {
        for graph in [vec![small(device)], empty(device).to_vec()].concat() {
            let (n, m) = (graph.num_dst(), graph.num_src());
            for (heads, inputs, drop) in [(1, 3, false), (2, 3, false), (3, 4, false), (2, 4, true)] {
                let shapes = [(n, heads), (m, heads), (m, 2 * heads), (graph.num_edges(), heads)];
                let up = |(k, shape): (usize, &_)| upload(device, k as u64 + 1, *shape, DType::F64);
                let inputs: Vec<_> = shapes[..inputs].iter().enumerate().map(up).collect();
                check(device, &inputs, &[], |tape, x| run(tape, &graph, x, drop.then(|| dropout(&graph)))).unwrap();
            }
        }
    }

    fn gradients_with_edge_features(device: &Device) {
        let graph = small(device);
        let up = |seed, rows, cols| upload(device, seed, (rows, cols), DType::F64);
        let feat = up(5, graph.num_edges(), 3);
        check(device, &[up(1, 5, 2), up(2, 6, 2), up(3, 6, 4), up(4, 2, 3)], &[], |tape, x| {
            let bias = Bias::Features { feat: &feat, weight: &x[3] };
            let score = Score::Gat { l: &x[0], r: &x[1], z: &x[2], slope: 0.0 };
            attention(tape, &graph, 2, score, bias, None, None)
        })
        .unwrap();
    }

    fn equals_dense_softmax_in_f64(device: &Device) {
        let (graph, heads) = (small(device), 2);
        let inputs: Vec<_> = [(5, 2), (6, 2), (6, 6), (12, 2)]
            .into_iter()
            .enumerate()
            .map(|(k, shape)| upload(device, k as u64, shape, DType::F64))
            .collect();
        let mut tape = Tape::new(device);
        let vars: Vec<Var> = inputs.iter().map(|m| tape.leaf(m.clone())).collect();
        let out = run(&mut tape, &graph, &vars, Some(dropout(&graph))).unwrap();
        let [l, r, z, bias] = [0, 1, 2, 3].map(|k| f64s(&inputs[k]));
        let expected = dense_attention(&graph, heads, &z, Some(&dropout(&graph)), |e, j, i, h| {
            let x = l[i * heads + h] + r[j * heads + h];
            x.max(0.0) + 0.2 * x.min(0.0) + bias[e * heads + h]
        });
        near(&f64s(out.value()), &expected, 1e-12, "out");
    }

    /// With tolerances for f32 and bf16.
    fn cases(check: impl Fn(&Case<'_>, &str, f64, f64)) {
        let edges = with_hub(&Device::cpu()).num_edges();
        for (heads, width) in [(8, 16), (3, 8), (1, 32), (2, 5), (5, 16), (9, 8)] {
            // Heads that are not whole vectors are served by portable code, which adds up a hub's edges one after
            // another.
            let single = if width % 8 == 0 { 2e-5 } else { 1e-4 };
            for extras in [false, true] {
                let (n, c) = (300, heads * width);
                let all = [(n, heads, Computed), (n, heads, Computed), (n, c, Stored), (edges, heads, Computed)];
                let inputs = if extras { &all[..] } else { &all[..3] };
                let f = &|tape: &mut Tape, graph: &Rc<Adjacency>, x: &[Var]| {
                    run(tape, graph, x, extras.then(|| dropout(graph)))
                };
                check(&Case { graph: &with_hub, inputs, f }, &format!("{heads}×{width}"), single, 2e-2);
            }
        }
    }

    cases_agree_with_f64!(cases);

    #[test]
    fn the_same_bits_for_any_number_of_threads() {
        let edges = with_hub(&Device::cpu()).num_edges();
        let inputs = [(300, 4, Computed), (300, 4, Computed), (300, 64, Stored), (edges, 4, Computed)];
        same_bits_over_a_hub("gat", &inputs, |tape, graph, x| run(tape, graph, x, Some(dropout(graph))));
    }

    #[test]
    fn nonsense_is_refused() {
        let device = Device::cpu();
        let graph = small(&device);
        let mut tape = Tape::new(&device);
        let mut leaf = |rows, cols, dtype| tape.leaf(upload(&device, 1, (rows, cols), dtype));
        let (l, r, z) = (leaf(5, 2, DType::F32), leaf(6, 2, DType::F32), leaf(6, 4, DType::F32));
        let (odd, half) = (leaf(6, 3, DType::F32), leaf(5, 2, DType::Bf16));
        let mut run =
            |l, r, z| attention(&mut tape, &graph, 2, Score::Gat { l, r, z, slope: 0.2 }, Bias::None, None, None);
        assert!(run(&l, &r, &z).is_ok());
        assert!(run(&r, &l, &z).is_err());
        assert!(run(&l, &r, &odd).is_err());
        assert!(run(&half, &r, &z).is_err());
    }
}
