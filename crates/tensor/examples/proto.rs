use graphweft_graph::Csr;
use graphweft_tensor::*;
use std::rc::Rc;
use std::time::Instant;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let name = &a[1];
    let t: usize = a[2].parse().unwrap();
    rayon::ThreadPoolBuilder::new().num_threads(t).build_global().unwrap();
    let ptr: Vec<u64> = bytemuck::pod_collect_to_vec(&std::fs::read(format!("/tmp/proto/{name}.ptr")).unwrap());
    let idx: Vec<u32> = bytemuck::pod_collect_to_vec(&std::fs::read(format!("/tmp/proto/{name}.idx")).unwrap());
    let n = ptr.len() - 1;
    let e = idx.len();
    let dev = Device::cpu();
    let g = Rc::new(Adjacency::new(&dev, Csr::new(ptr, idx, n).unwrap()));
    let d = 128;
    let mut x = 1u32;
    let mut rnd = |k: usize| -> Vec<f32> {
        (0..k)
            .map(|_| {
                x = x.wrapping_mul(1664525).wrapping_add(1013904223);
                (x >> 8) as f32 / 8388608.0 - 1.0
            })
            .collect()
    };
    let qf = rnd(n * d);
    let kvf = rnd(2 * n * d);
    let gof = rnd(n * d);
    for dt in [DType::F32, DType::Bf16] {
        let up = |v: &[f32], c: usize| {
            let m = dev.upload(n, c, v, Tag::Activations).unwrap();
            dev.convert("x", &m, dt).unwrap()
        };
        let (q, kv, go) = (up(&qf, d), up(&kvf, 2 * d), up(&gof, d));
        let mut tf = vec![];
        let mut tb = vec![];
        for _ in 0..9 {
            let mut tape = Tape::new(&dev);
            let qv = tape.leaf(q.clone());
            let kvv = tape.leaf(kv.clone());
            let s = Instant::now();
            let o =
                ops::attention::attention(&mut tape, &g, 8, &qv, &kvv, ops::attention::BiasVar::None, None).unwrap();
            tf.push(s.elapsed().as_secs_f64());
            let s = Instant::now();
            let r = tape.backward(vec![(o, go.clone())], &[&qv, &kvv], |_| Ok(())).unwrap();
            tb.push(s.elapsed().as_secs_f64());
            drop(r);
        }
        tf.sort_by(f64::total_cmp);
        tb.sort_by(f64::total_cmp);
        println!(
            "{name} t={t} {dt}: fwd {:.1} ns/e  bwd {:.1}  f+b {:.1} (min {:.1})",
            tf[4] / e as f64 * 1e9,
            tb[4] / e as f64 * 1e9,
            (tf[4] + tb[4]) / e as f64 * 1e9,
            (tf[0] + tb[0]) / e as f64 * 1e9
        );
    }
}
