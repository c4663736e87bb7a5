//! A model that this crate does not know: made, named and trained from outside.

use std::rc::Rc;

use graphweft_model::{Context, Mode, ModelConfig, Models};
use graphweft_tensor::ops::loss::{LossRows, softmax_cross_entropy};
use graphweft_tensor::optim::{Optimizer, Rule};
use graphweft_tensor::{DType, Device, Tag, Tape};

use super::means::Means;
use super::{CLASSES, N, Run, f64s};

#[test]
fn a_model_from_outside_is_named_beside_the_others_or_handed_over() {
    let models = Models::default().with::<Means>();
    assert_eq!(models.names().len(), Models::default().names().len() + 1);
    let read = models.read(toml::from_str("name = 'means'\nrounds = 3").unwrap()).unwrap();
    assert_eq!(read, ModelConfig::new(Means { rounds: 3, ..Means::default() }));
    assert_eq!((read.name(), read.hops(), read.layers(), read.heads()), ("means", 3, 3, None));
    assert!(read.adds_self_loops() && read.sees_edges() && read.follows_edges());
    assert_eq!(toml::to_string(&read).unwrap(), "name = \"means\"\nhidden = 16\nrounds = 3\n");
    // Others do not know it, and it takes no keys but its own.
    assert!(toml::from_str::<ModelConfig>("name = 'means'").is_err());
    assert!(models.read(toml::from_str("name = 'means'\nheads = 2").unwrap()).is_err());
    // The same name again takes the place of the one before.
    assert_eq!(models.clone().with::<Means>().names(), models.names());
    assert_eq!(Models::default().with_all(&models).names(), models.names());
}

#[test]
fn a_model_from_outside_learns() {
    let device = Device::cpu();
    let config = ModelConfig::new(Means::default());
    let (network, cx) = Run::new("name = 'gcn'", DType::F32).prepare_model(&config, &device, Mode::Train);
    let labels: Rc<[i64]> = (0..N as i64).map(|i| i % CLASSES as i64).collect();
    let rows = LossRows::new((0..N as u32).collect::<Vec<_>>()).unwrap();
    let parameters = network.parameters();
    let mut optimizer = Optimizer::new(Rule::adam(0.0), &parameters).unwrap();
    let losses: Vec<f64> = (0..20)
        .map(|epoch| {
            let mut tape = Tape::new(&device);
            let logits = network.forward(&mut tape, &Context { epoch, ..cx.clone() }).unwrap().unwrap();
            let loss = softmax_cross_entropy(&mut tape, &logits, &labels, &rows, 0.0, N as f64).unwrap();
            let value = f64s(loss.value())[0];
            let one = device.upload(1, 1, &[1.0f32], Tag::Activations).unwrap();
            tape.backward(vec![(loss, one)], &[], |_| Ok(())).unwrap();
            optimizer.step(0.02, 1.0).unwrap();
            value
        })
        .collect();
    assert!(losses[19] < losses[0], "{losses:?}");
}
