//! SIGN gathers once: after the first epoch ranks send nothing but gradients. And weight decay on the first layer.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

use crate::whole::fresh;
use graphweft_train::config::{Config, Draft};

fn config(more: &[&str]) -> Config {
    let mut draft = Draft::default();
    let usual = ["data.graph=sbm:90:3:6:f=4", "model.hidden=8", "train.epochs=4", "train.lr=0.01"];
    usual.iter().chain(more).for_each(|s| draft.assign(s).unwrap());
    draft.finish().unwrap()
}

#[test]
fn sign_sends_gradients_alone_after_its_first_epoch() {
    let dir = tempfile::tempdir().unwrap();
    for strategy in ["gather", "halo", "heads", "ring"] {
        let strategy = format!("parallel.strategy={strategy}");
        let config = config(&["model.name=sign", "parallel.ranks=3", &strategy]);
        let run = fresh(&config, &dir.path().join(&strategy)).runs.remove(0);
        for usage in &run.cost.usages {
            let ops: Vec<&str> = usage.sent.iter().filter(|sent| sent.bytes > 0).map(|sent| sent.op.as_str()).collect();
            assert!(ops.contains(&"gradients") && !ops.contains(&"aggregate"), "{strategy}: {ops:?}");
        }
    }
}

/// A gradient of zero, and decay as a part of it: after one step of SGD what decays has shrunk by lr·decay.
#[test]
fn decay_of_the_first_layer_leaves_the_others_alone() {
    let dir = tempfile::tempdir().unwrap();
    let after = |name: &str, more: &[&str]| {
        let usual = ["model.name=mlp", "model.layers=2", "train.epochs=1", "train.optimizer=sgd", "train.lr=0.5"];
        let settings: Vec<&str> = usual.iter().chain(more).copied().collect();
        fresh(&config(&settings), &dir.path().join(name));
        let bytes = std::fs::read(dir.path().join(name).join("model.safetensors")).unwrap();
        let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        ["lins.0.weight", "lins.0.bias", "lins.1.weight", "lins.1.bias"]
            .map(|name| file.tensor(name).unwrap().data().to_vec())
    };
    let none = after("none", &[]);
    let all = after("all", &["train.weight_decay=0.1"]);
    let first = after("first", &["train.weight_decay=0.1", "train.decayed_layers=first"]);
    assert!((0..4).filter(|k| none[*k] != all[*k]).count() >= 3, "weights decay, and biases that are not 0");
    assert_eq!(first[..2], all[..2]);
    assert_eq!(first[2..], none[2..]);
    for optimizer in ["adam", "adamw"] {
        let optimizer = format!("train.optimizer={optimizer}");
        let [none, all, first] =
            [&[][..], &["train.weight_decay=0.1"], &["train.weight_decay=0.1", "train.decayed_layers=first"]]
                .iter()
                .enumerate()
                .map(|(k, more)| {
                    let more: Vec<&str> = more.iter().copied().chain([optimizer.as_str()]).collect();
                    after(&format!("{optimizer}-{k}"), &more)
                })
                .collect::<Vec<_>>()
                .try_into()
                .unwrap();
        assert!(first[..2] == all[..2] && first[2..] == none[2..] && all[2] != none[2], "{optimizer}");
    }
}
