//! Linear attention of all nodes to all nodes, as in SGFormer, Polynormer and NodeFormer.
//!
//! Per head, with S = Σ_j k_jᵀ·v_j and z = Σ_j k_j over *all* nodes:
//!
//! out_i = (c·v_i + β·q_i·S) / (c + ε + β·q_i·z)
//!
//! c is the weight of a node's own value (SGFormer: the number of nodes; Polynormer: 0), ε keeps the denominator from
//! zero (in Polynormer), β = 1 or, in the paper of SGFormer, 1 / (‖q‖·‖k‖) with the norms of the whole matrices. No
//! matrix of nodes × nodes exists.
//!
//! Nodes meet only in S ‖ z, H·d_h·(d_h + 1) numbers (and in the two norms), so a rank computes these over its own
//! rows, sums them over ranks through [`Reduce`], and goes on row by row. Backward is split the same way: with gn_i =
//! g_i / den_i and gd_i = −g_i·out_i / den_i, T = Σ_i q_iᵀ·gn_i and t = Σ_i q_i·gd_i are summed over ranks, and then
//!
//! dq_i = β·(gn_i·Sᵀ + gd_i·z),  dk_j = β·(v_j·Tᵀ + t),  dv_j = c·gn_j + β·k_j·T,
//!
//! and through β, with dβ = ⟨S, T⟩ + ⟨z, t⟩: dq_i −= dβ·β/‖q‖²·q_i, dk_j −= dβ·β/‖k‖²·k_j.

use std::rc::Rc;

use crate::cpu::scratch;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::kernels;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::reduce::Reduce;
use crate::tape::{Tape, Var, one_output};

const OP: &str = "global attention";

/// What β is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// 1.
    #[default]
    One,
    /// 1 / (‖q‖·‖k‖), norms of the whole matrices.
    Norms,
}

/// The operands: on the tape, by reference for kernels, and kept for backward.
#[derive(Clone, Copy, Debug)]
pub struct Global<X, S = Scale> {
    /// Heads; they share the columns equally.
    pub heads: usize,
    /// A row per node.
    pub q: X,
    /// As wide as q.
    pub k: X,
    /// A row per node, of any width that the heads can share.
    pub v: X,
    /// c, the same on all ranks.
    pub own: f64,
    /// ε.
    pub epsilon: f64,
    /// β. For kernels ‖q‖² and ‖k‖² over all ranks, where it depends on them.
    pub scale: S,
}

/// A rank's rows.
pub type GlobalRows<'a> = Global<&'a Matrix, Option<&'a Matrix>>;

impl GlobalRows<'_> {
    /// Widths of one head: of q and k, and of v.
    pub fn head_widths(&self) -> (usize, usize) {
        (self.q.cols() / self.heads, self.v.cols() / self.heads)
    }

    /// Shape of S ‖ z: a row for each column of k, a column for each of a head's v and one for z.
    pub fn sums_shape(&self) -> (usize, usize) {
        (self.q.cols(), self.head_widths().1 + 1)
    }

    fn check(&self) -> Result<()> {
        for d in [self.q.cols(), self.v.cols()] {
            if self.heads == 0 || d == 0 || !d.is_multiple_of(self.heads) {
                let problem = format!("{d} columns cannot be shared by {} heads", self.heads);
                return Err(Error::Argument { op: OP, problem });
            }
        }
        self.k.expect(OP, "k", self.q.rows(), self.q.cols())?;
        self.v.expect(OP, "v", self.q.rows(), self.v.cols())?;
        for (what, m) in [("k", self.k), ("v", self.v)] {
            if m.dtype() != self.q.dtype() {
                return Err(Error::Type { op: OP, what, got: m.dtype() });
            }
        }
        Ok(())
    }
}

/// What backward has of this rank's rows beside the operands.
#[derive(Clone, Copy)]
pub struct GlobalSaved<'a> {
    /// The output.
    pub out: &'a Matrix,
    /// Its denominators, a row per node, a column per head.
    pub den: &'a Matrix,
    /// The gradient of the output.
    pub g: &'a Matrix,
}

/// Sums over the rows of all ranks.
#[derive(Clone, Copy)]
pub struct Totals<'a> {
    /// S ‖ z, of forward.
    pub sums: &'a Matrix,
    /// T ‖ t, of backward.
    pub back: &'a Matrix,
}

kernels! {
    /// What a backend does for linear attention.
    pub trait GlobalKernels {
        /// Overwrites `norms` (1 × 2) with ‖q‖² and ‖k‖² over these rows.
        fn global_norms(a: &GlobalRows<'_>, norms: &mut Matrix) -> Result<()> {
            |dry| dry.stream("global norms", &[a.q, a.k], &[norms])
        }

        /// Overwrites `sums` with S ‖ z over these rows.
        fn global_sums(a: &GlobalRows<'_>, sums: &mut Matrix) -> Result<()> {
            |dry|
            let _sums = dry.within(|| scratch::global_sums(a))?;
            dry.gemm("global sums", a.k.dtype(), [sums.rows(), sums.cols(), a.k.rows()])
        }

        /// Overwrites `out` and `den`, from S ‖ z over all ranks.
        fn global_apply(a: &GlobalRows<'_>, sums: &Matrix, out: &mut Matrix, den: &mut Matrix) -> Result<()> {
            |dry| dry.gemm("global apply", a.q.dtype(), [a.q.rows(), sums.cols(), sums.rows()])
        }

        /// Overwrites `sums` with T ‖ t over these rows.
        fn global_back_sums(a: &GlobalRows<'_>, saved: &GlobalSaved<'_>, sums: &mut Matrix) -> Result<()> {
            |dry|
            let _sums = dry.within(|| scratch::global_sums(a))?;
            dry.gemm("global back sums", a.q.dtype(), [sums.rows(), sums.cols(), a.q.rows()])
        }

        /// Overwrites dq, dk and dv, from the sums over all ranks.
        fn global_back_rows(
            a: &GlobalRows<'_>,
            saved: &GlobalSaved<'_>,
            totals: Totals<'_>,
            to: [&mut Matrix; 3],
        ) -> Result<()> {
            |dry|
            let sums = totals.sums;
            // Three products of the same size: for dq, dk and dv.
            dry.gemm("global back rows", a.q.dtype(), [a.q.rows(), 3 * sums.cols(), sums.rows()])
        }
    }
}

/// Linear attention over the rows of all ranks. Every rank must call it, in forward and in backward, also without rows.
pub fn global_attention(tape: &mut Tape, operands: Global<&Var>, reduce: Rc<dyn Reduce>) -> Result<Var> {
    let Global { heads, q, k, v, own, epsilon, scale } = operands;
    let [q_value, k_value, v_value] = [q, k, v].map(|x| x.value().clone());
    let mut call = Call { heads, q: q_value, k: k_value, v: v_value, own, epsilon, scale: None };
    call.rows().check()?;
    let device = tape.device().clone();
    let (n, dtype) = (call.q.rows(), call.q.dtype());
    if scale == Scale::Norms {
        let mut norms = device.uninit(OP, 1, 2, dtype.compute(), Tag::Activations)?;
        device.backend().global_norms(&call.rows(), &mut norms)?;
        reduce.sum(&mut norms)?;
        call.scale = Some(norms);
    }
    let mut sums = call.sums(&device, dtype.compute())?;
    device.backend().global_sums(&call.rows(), &mut sums)?;
    reduce.sum(&mut sums)?;
    let mut out = device.uninit(OP, n, call.v.cols(), dtype, Tag::Activations)?;
    let mut den = device.uninit(OP, n, heads, dtype.compute(), Tag::Activations)?;
    device.backend().global_apply(&call.rows(), &sums, &mut out, &mut den)?;
    let kept = out.clone();
    Ok(tape.push(&[q, k, v], out, || {
        one_output(move |g, grads| {
            let device = grads.device().clone();
            let (rows, saved) = (call.rows(), GlobalSaved { out: &kept, den: &den, g: &g });
            let mut back = call.sums(&device, sums.dtype())?;
            device.backend().global_back_sums(&rows, &saved, &mut back)?;
            reduce.sum(&mut back)?;
            let new = |m: &Matrix| device.uninit(OP, m.rows(), m.cols(), m.dtype(), Tag::Activations);
            let (mut dq, mut dk, mut dv) = (new(rows.q)?, new(rows.k)?, new(rows.v)?);
            device.backend().global_back_rows(
                &rows,
                &saved,
                Totals { sums: &sums, back: &back },
                [&mut dq, &mut dk, &mut dv],
            )?;
            grads.put(0, dq)?;
            grads.put(1, dk)?;
            grads.put(2, dv)
        })
    }))
}

/// Operands kept for backward.
type Call = Global<Matrix, Option<Matrix>>;

impl Call {
    fn rows(&self) -> GlobalRows<'_> {
        let &Self { heads, ref q, ref k, ref v, own, epsilon, ref scale } = self;
        Global { heads, q, k, v, own, epsilon, scale: scale.as_ref() }
    }

    fn sums(&self, device: &Device, dtype: DType) -> Result<Matrix> {
        let (rows, cols) = self.rows().sums_shape();
        device.uninit(OP, rows, cols, dtype, Tag::Activations)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::cpu::{Cpu, Isa};
    use crate::dry::tests::takes_as_much;
    use crate::gradcheck::check;
    use crate::ops::graphs::{f64s, near, rows_of, same_bits_for_any_number_of_threads, upload};
    use crate::ops::tests::gradients;
    use crate::reduce::Alone;

    fn run(tape: &mut Tape, heads: usize, x: &[Var], own: f64, scale: Scale) -> Result<Var> {
        let operands = Global { heads, q: &x[0], k: &x[1], v: &x[2], own, epsilon: EPSILON, scale };
        global_attention(tape, operands, Rc::new(Alone))
    }

    /// Large enough to be seen.
    const EPSILON: f64 = 0.5;

    /// c, which keeps denominators away from zero, and β.
    const MODELS: [(f64, Scale); 2] = [(7.0, Scale::Norms), (7.0, Scale::One)];

    fn inputs(device: &Device, n: usize, heads: usize, [m, d]: [usize; 2], dtype: DType) -> [Matrix; 3] {
        let up = |seed, cols| {
            let x: Vec<f64> = f64s(&upload(device, seed, (n, cols), DType::Bf16)).iter().map(|x| 0.25 * x).collect();
            device.convert("test", &device.upload(n, cols, &x, Tag::Activations).unwrap(), dtype).unwrap()
        };
        [up(1, heads * m), up(2, heads * m), up(3, heads * d)]
    }

    gradients!(|device| {
        for ((own, scale), (n, heads)) in MODELS.into_iter().flat_map(|s| [(s, (7, 1)), (s, (5, 2)), (s, (1, 3))]) {
            let inputs = inputs(&device, n, heads, [2, 3], DType::F64);
            check(&device, &inputs, &[], |tape, x| run(tape, heads, x, own, scale)).unwrap();
        }
        // Polynormer: no own value, and keys that are the queries.
        let positive: Vec<f64> = f64s(&upload(&device, 1, (6, 4), DType::F64)).iter().map(|x| x.abs() + 0.1).collect();
        let qk = device.upload(6, 4, &positive, Tag::Activations).unwrap();
        check(&device, &[qk, upload(&device, 2, (6, 4), DType::F64)], &[], |tape, x| {
            run(tape, 2, &[x[0].clone(), x[0].clone(), x[1].clone()], 0.0, Scale::One)
        })
        .unwrap();
    });

    #[test]
    fn equals_dense_attention_in_f64() {
        let device = Device::cpu();
        let (n, heads, m, d) = (9, 2, 3, 4);
        for (own, scale) in MODELS {
            let inputs = inputs(&device, n, heads, [m, d], DType::F64);
            let mut tape = Tape::new(&device);
            let vars: Vec<Var> = inputs.iter().map(|x| tape.leaf(x.clone())).collect();
            let out = run(&mut tape, heads, &vars, own, scale).unwrap();
            let [q, k, v] = inputs.map(|x| f64s(&x));
            let norm = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
            let beta = if scale == Scale::Norms { 1.0 / (norm(&q) * norm(&k)) } else { 1.0 };
            let mut expected = vec![0.0; n * heads * d];
            for (i, h) in (0..n).flat_map(|i| (0..heads).map(move |h| (i, h))) {
                // The whole row of nodes × nodes, with c added on the diagonal.
                let at = |row: usize, c: usize| (row * heads + h) * m + c;
                let weight = |j: usize| {
                    let product: f64 = (0..m).map(|c| q[at(i, c)] * k[at(j, c)]).sum();
                    beta * product + if i == j { own } else { 0.0 }
                };
                let total: f64 = EPSILON + (0..n).map(weight).sum::<f64>();
                for c in 0..d {
                    let sum: f64 = (0..n).map(|j| weight(j) * v[(j * heads + h) * d + c]).sum();
                    expected[(i * heads + h) * d + c] = sum / total;
                }
            }
            near(&f64s(out.value()), &expected, 1e-12, "out");
        }
    }

    /// out, dq, dk and dv.
    fn results(
        device: &Device,
        inputs: [Matrix; 3],
        heads: usize,
        own: f64,
        scale: Scale,
        reduce: Rc<dyn Reduce>,
    ) -> Vec<Vec<f64>> {
        let mut tape = Tape::new(device);
        let x = inputs.map(|x| tape.leaf(x));
        let operands = Global { heads, q: &x[0], k: &x[1], v: &x[2], own, epsilon: EPSILON, scale };
        let out = global_attention(&mut tape, operands, reduce).unwrap();
        let value = out.value().clone();
        let g = upload(device, 9, value.shape(), value.dtype());
        let found = tape.backward(vec![(out, g)], &x.iter().collect::<Vec<_>>(), |_| Ok(())).unwrap();
        std::iter::once(&value).chain(found.iter().flatten()).map(f64s).collect()
    }

    fn agrees_with_f64(device: &Device) {
        for (n, heads, widths) in [(5000, 2, [16, 16]), (700, 1, [33, 65]), (300, 3, [5, 7]), (1, 1, [1, 1])] {
            for (own, scale) in [(n as f64, Scale::Norms), (5.0 * n as f64, Scale::One)] {
                let run = |device: &Device, dtype| {
                    let inputs = inputs(device, n, heads, widths, dtype);
                    results(device, inputs, heads, own, scale, Rc::new(Alone))
                };
                takes_as_much(&format!("{n} {widths:?} {scale:?}"), |device| run(device, DType::F32));
                let exact = run(&Device::cpu(), DType::F64);
                for (dtype, tolerance) in [(DType::F32, 1e-5), (DType::Bf16, 2e-2)] {
                    let found = run(device, dtype);
                    for (k, (x, e)) in found.iter().zip(&exact).enumerate() {
                        near(x, e, tolerance, &format!("{n} {widths:?} {scale:?} {device:?} {dtype} result {k}"));
                    }
                    assert!(found == run(device, dtype), "{device:?} {dtype}: other bits the second time");
                }
            }
        }
    }

    #[test]
    fn every_instruction_set_and_type_agrees_with_f64() {
        for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512, Isa::Avx512Bf16] {
            agrees_with_f64(&Device::with_backend(Box::new(Cpu::with_isa(isa))));
        }
    }

    #[cfg(feature = "cuda")]
    #[test]
    #[ignore = "needs a GPU"]
    fn a_gpu_agrees_with_f64() {
        agrees_with_f64(&crate::ops::tests::gpu());
    }

    #[test]
    fn the_same_bits_for_any_number_of_threads() {
        let run = || {
            let device = Device::cpu();
            let inputs = inputs(&device, 9000, 2, [8, 8], DType::F32);
            results(&device, inputs, 2, 9000.0, Scale::Norms, Rc::new(Alone))
        };
        same_bits_for_any_number_of_threads(run, "global");
    }

    /// Ranks that run one after another: a first run through all ranks records what each gives to every sum, a second
    /// one is told the totals of sums that were complete in the first. After as many rounds as there are sums,
    /// everything is right.
    #[derive(Default)]
    struct Rounds {
        known: Vec<Vec<f64>>,
        heard: RefCell<Vec<Vec<f64>>>,
    }

    impl Reduce for Rounds {
        fn sum(&self, m: &mut Matrix) -> Result<()> {
            let at = self.heard.borrow().len();
            self.heard.borrow_mut().push(f64s(m));
            if let Some(total) = self.known.get(at) {
                *m = m.device().upload(m.rows(), m.cols(), total, Tag::Activations)?;
            }
            Ok(())
        }
    }

    #[test]
    fn ranks_together_are_one() {
        let device = Device::cpu();
        let (n, heads, own, scale) = (40, 2, 40.0, Scale::Norms);
        let all = inputs(&device, n, heads, [3, 4], DType::F64);
        let whole = results(&device, all.clone(), heads, own, scale, Rc::new(Alone));
        // The gradient of the output is drawn per rank: give every rank its rows of the whole one.
        let g = upload(&device, 9, (n, heads * 4), DType::F64);
        // One rank has no rows.
        let ranks = [0..13, 13..13, 13..40];
        let mut known: Vec<Vec<f64>> = Vec::new();
        for round in 0..4 {
            let mut heard: Vec<Vec<Vec<f64>>> = Vec::new();
            let mut found: Vec<Vec<f64>> = vec![Vec::new(); 4];
            for rank in ranks.clone() {
                let reduce = Rc::new(Rounds { known: known.clone(), heard: RefCell::default() });
                let mut tape = Tape::new(&device);
                let x = all.clone().map(|m| tape.leaf(rows_of(&m, rank.clone())));
                let operands = Global { heads, q: &x[0], k: &x[1], v: &x[2], own, epsilon: EPSILON, scale };
                let out = global_attention(&mut tape, operands, Rc::clone(&reduce) as Rc<dyn Reduce>).unwrap();
                let value = out.value().clone();
                let back = tape.backward(vec![(out, rows_of(&g, rank))], &x.iter().collect::<Vec<_>>(), |_| Ok(()));
                let back = back.unwrap();
                for (to, m) in found.iter_mut().zip(std::iter::once(&value).chain(back.iter().flatten())) {
                    to.extend(f64s(m));
                }
                heard.push(reduce.heard.take());
            }
            if round == 3 {
                for (k, (found, whole)) in found.iter().zip(&whole).enumerate() {
                    near(found, whole, 1e-12, &format!("result {k}"));
                }
                let numbers: Vec<usize> = heard[0].iter().map(Vec::len).collect();
                assert_eq!(numbers, [2, heads * 3 * 5, heads * 3 * 5], "what travels");
            } else {
                let total = heard.iter().map(|h| h[round].clone());
                known.push(total.reduce(|a, b| a.iter().zip(b).map(|(a, b)| a + b).collect()).unwrap());
            }
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let device = Device::cpu();
        let mut tape = Tape::new(&device);
        let mut leaf = |rows, cols, dtype| tape.leaf(upload(&device, 1, (rows, cols), dtype));
        let (q, short, odd, half) =
            (leaf(5, 4, DType::F32), leaf(4, 4, DType::F32), leaf(5, 3, DType::F32), leaf(5, 4, DType::Bf16));
        let mut ok =
            |q: &Var, k: &Var, v: &Var| run(&mut tape, 2, &[q.clone(), k.clone(), v.clone()], 1.0, Scale::One).is_ok();
        assert!(ok(&q, &q, &q));
        assert!(!ok(&q, &short, &q));
        assert!(!ok(&q, &q, &odd));
        assert!(!ok(&q, &half, &q));
        assert!(!ok(&odd, &odd, &q));
    }
}
