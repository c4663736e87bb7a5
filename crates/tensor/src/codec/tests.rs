use super::*;
use crate::device::Device;
use crate::ops::tests::on_every_device;

const CODECS: [Codec; 9] = [
    Codec::Bf16,
    Codec::F8,
    Codec::Bits(8),
    Codec::Bits(4),
    Codec::Bits(2),
    Codec::Bits(1),
    Codec::Columns(1),
    Codec::Columns(3),
    Codec::Columns(100),
];

/// Rows of several sizes, of which some have elements of one sign, or equal ones.
fn rows(count: usize, cols: usize, seed: u64) -> Vec<f32> {
    let random = graphweft_base::random::Philox::new(seed, 5);
    let size = |row: usize| [1.0, 1e-3, 40.0, 0.0][row % 4];
    (0..count * cols).map(|k| size(k / cols) * (random.normals(k as u64)[0] + [0.0, 5.0][k / cols % 2])).collect()
}

fn through(device: &Device, codec: Codec, draw: Draw, x: &[f32], cols: usize) -> Vec<f32> {
    let count = x.len() / cols;
    let ids: Vec<u64> = (0..count as u64).map(|k| k * 7 + 3).collect();
    let x = device.upload(count, cols, x, Tag::Activations).unwrap();
    let coded = encode(codec, draw, &x, &ids).unwrap();
    assert_eq!(coded.shape(), (count, codec.words(cols)));
    let mut back = device.zeros("test", count, cols, DType::F32, Tag::Activations).unwrap();
    decode(codec, draw, &coded, &mut back).unwrap();
    back.to_vec().unwrap()
}

#[test]
fn names_come_back_and_others_are_refused() {
    for codec in CODECS {
        assert_eq!(codec.to_string().parse::<Codec>().unwrap(), codec);
    }
    for name in ["", "exact", "int3", "int16", "columns", "columns:0", "columns:x", "columns:70000", "fp8"] {
        let problem = name.parse::<Codec>().unwrap_err().to_string();
        assert!(problem.contains("int8"), "{problem}");
    }
}

#[test]
fn rows_take_the_words_that_the_table_says() {
    for (codec, words) in CODECS.into_iter().zip([32, 17, 18, 10, 6, 4, 64, 22, 1]) {
        assert_eq!(codec.words(64), words, "{codec}");
    }
    let odd: Vec<usize> = CODECS.iter().map(|codec| codec.words(33)).collect();
    assert_eq!(odd, [17, 10, 11, 7, 5, 4, 33, 11, 1]);
}

/// As far as the format lets an element be from what it was.
fn bound(codec: Codec, row: &[f32], x: f32) -> f32 {
    let (low, high) = row.iter().fold((f32::MAX, f32::MIN), |(low, high), x| (low.min(*x), high.max(*x)));
    let most = low.abs().max(high.abs());
    match codec {
        Codec::Bf16 => x.abs() / 256.0,
        Codec::F8 => (x.abs() / 16.0).max(most / 448.0 / 1024.0) * 1.000_01,
        Codec::Bits(bits) => (high - low) / ((1 << bits) - 1) as f32 * 1.000_01 + most * 1e-6,
        Codec::Columns(_) => f32::INFINITY,
    }
}

fn comes_back(device: &Device) {
    for codec in CODECS {
        for cols in [1, 2, 5, 16, 33, 64, 130] {
            let x = rows(200, cols, cols as u64);
            let back = through(device, codec, Draw::new(1, 2, 3, 4), &x, cols);
            for (row, (x, y)) in x.chunks(cols).zip(back.chunks(cols)).enumerate() {
                for (a, b) in x.iter().zip(y) {
                    let bound = bound(codec, x, *a);
                    assert!((a - b).abs() <= bound, "{codec}, {cols} columns, row {row}: {a} came back as {b}");
                }
            }
        }
    }
}

on_every_device!(comes_back);

#[test]
fn numbers_of_the_format_stay_what_they_are() {
    let device = Device::cpu();
    for (code, sign) in (0..=0x7e).flat_map(|code| [(code, 1.0), (code, -1.0)]) {
        // E4M3, from its definition.
        let (exponent, mantissa) = (code >> 3, (code & 7) as f32);
        let x: f32 = match exponent {
            0 => sign * mantissa / 8.0 * 2f32.powi(-6),
            _ => sign * (1.0 + mantissa / 8.0) * 2f32.powi(exponent - 7),
        };
        let back = through(&device, Codec::F8, Draw::new(0, 0, 0, 0), &[448.0, x], 2);
        assert_eq!(back, [448.0, x], "{code:#x}");
    }
    let halves = [1.0f32, -0.5, 3.140_625, 1e30, -0.0];
    assert_eq!(through(&device, Codec::Bf16, Draw::new(0, 0, 0, 0), &halves[..3], 3), halves[..3]);
    let grid: Vec<f32> = (0..256).map(|k| 2.0 + k as f32 * 0.25).collect();
    assert_eq!(through(&device, Codec::Bits(8), Draw::new(0, 0, 0, 0), &grid, 256), grid);
    assert_eq!(through(&device, Codec::Columns(1), Draw::new(0, 0, 0, 0), &halves, 5), halves);
}

#[test]
fn what_is_no_number_is_not_hidden() {
    for codec in [Codec::Bf16, Codec::F8, Codec::Bits(8), Codec::Bits(1), Codec::Columns(1)] {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for at in [0, 16, 18] {
                let mut x = rows(2, 19, 4);
                x[at] = bad;
                let back = through(&Device::cpu(), codec, Draw::new(1, 1, 1, 1), &x, 19);
                assert!(!back[at].is_finite(), "{codec}: {bad} came back as {}", back[at]);
                assert!(back[19..].iter().all(|x| x.is_finite()), "{codec}: another row");
            }
        }
    }
}

/// The mean over draws is the element: its distance over its standard error is that of a normal number.
#[test]
fn means_over_draws_are_what_was_sent() {
    const DRAWS: u64 = 4000;
    let (device, cols) = (Device::cpu(), 24);
    let x = rows(3, cols, 9);
    for codec in [Codec::Bits(8), Codec::Bits(4), Codec::Bits(2), Codec::Bits(1), Codec::Columns(4)] {
        let (mut sums, mut squares) = (vec![0.0f64; x.len()], vec![0.0f64; x.len()]);
        for epoch in 0..DRAWS {
            let back = through(&device, codec, Draw::new(11, epoch, 2, 3), &x, cols);
            for (k, (y, x)) in back.iter().zip(&x).enumerate() {
                let off = f64::from(*y) - f64::from(*x);
                (sums[k], squares[k]) = (sums[k] + off, squares[k] + off * off);
            }
        }
        let count = DRAWS as f64;
        let mut chi = 0.0;
        for (k, (sum, square)) in sums.iter().zip(&squares).enumerate() {
            let size = f64::from(x[k].abs()).max(1e-9);
            let error = (square / count / count).sqrt().max(1e-7 * size);
            let z = sum / count / error;
            assert!(z.abs() < 4.8, "{codec}: element {k} is off by {z} standard errors");
            chi += z * z;
        }
        let mean = chi / x.len() as f64;
        assert!(mean < 1.6, "{codec}: mean square of {mean} standard errors");
    }
}

#[test]
fn the_same_draw_gives_the_same_bits_and_others_do_not() {
    let (device, cols) = (Device::cpu(), 40);
    let x = rows(400, cols, 2);
    for codec in [Codec::Bits(4), Codec::Columns(4)] {
        let of = |draw| through(&device, codec, draw, &x, cols);
        let first = of(Draw::new(1, 2, 3, 4));
        assert_eq!(first, of(Draw::new(1, 2, 3, 4)));
        let few = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let alone = few.install(|| through(&Device::cpu(), codec, Draw::new(1, 2, 3, 4), &x, cols));
        assert_eq!(first, alone, "{codec}: threads");
        for other in [Draw::new(2, 2, 3, 4), Draw::new(1, 3, 3, 4), Draw::new(1, 2, 4, 4), Draw::new(1, 2, 3, 5)] {
            assert_ne!(first, of(other), "{codec}");
        }
    }
    // A node's numbers are its own, wherever its row stands.
    let up = |x: &[f32]| device.upload(x.len() / cols, cols, x, Tag::Activations).unwrap();
    let draw = Draw::new(1, 1, 1, 1);
    let all = encode(Codec::Bits(8), draw, &up(&x), &(0..400).collect::<Vec<u64>>()).unwrap().to_vec::<f32>().unwrap();
    let one = encode(Codec::Bits(8), draw, &up(&x[cols * 17..cols * 18]), &[17]).unwrap().to_vec::<f32>().unwrap();
    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
    assert_eq!(bits(&one), bits(&all[17 * one.len()..18 * one.len()]));
}

#[test]
fn rows_and_ids_must_fit() {
    let device = Device::cpu();
    let x = device.upload(2, 4, &[0.0f32; 8], Tag::Activations).unwrap();
    let draw = Draw::new(0, 0, 0, 0);
    assert!(encode(Codec::Bf16, draw, &x, &[1]).is_err());
    let coded = encode(Codec::Bf16, draw, &x, &[1, 2]).unwrap();
    let mut narrow = device.zeros("test", 2, 9, DType::F32, Tag::Activations).unwrap();
    assert!(decode(Codec::Bf16, draw, &coded, &mut narrow).is_err());
    let mut few = device.zeros("test", 1, 4, DType::F32, Tag::Activations).unwrap();
    assert!(decode(Codec::Bf16, draw, &coded, &mut few).is_err());
}

#[test]
fn other_types_are_coded_as_f32() {
    let device = Device::cpu();
    let wide = device.upload(1, 3, &[1.0f64, 2.5, -3.0], Tag::Activations).unwrap();
    let coded = encode(Codec::Bf16, Draw::new(0, 0, 0, 0), &wide, &[0]).unwrap();
    for dtype in [DType::F64, DType::Bf16] {
        let mut back = device.zeros("test", 1, 3, dtype, Tag::Activations).unwrap();
        decode(Codec::Bf16, Draw::new(0, 0, 0, 0), &coded, &mut back).unwrap();
        assert_eq!(crate::ops::graphs::f64s(&back), [1.0, 2.5, -3.0]);
    }
}
