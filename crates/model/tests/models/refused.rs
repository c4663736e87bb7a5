//! Settings that a model cannot have.

use graphweft_model::{ModelConfig, Models, Shape};
use graphweft_tensor::{DType, Device};

use super::config;

#[test]
fn bad_configurations_name_the_key_and_the_remedy() {
    let shape = Shape::of_nodes(20, 4);
    let failure = |text: &str, shape: Shape| match config(text).build(&Device::cpu(), shape, DType::F32, 1) {
        Ok(_) => panic!("{text} was built"),
        Err(e) => e.to_string(),
    };
    let all = Models::default();
    // Each head of sgformer is as wide as all columns.
    for kind in all.iter().filter(|kind| kind.keys().contains(&"heads") && kind.name() != "sgformer") {
        let model = kind.name();
        for heads in [0, 3] {
            let message = failure(&format!("name = '{model}'\nhidden = 16\nheads = {heads}"), shape);
            assert!(message.contains("model.hidden = 16") && message.contains("divides it"), "{message}");
        }
    }
    for model in all.names() {
        let message = failure(&format!("name = '{model}'\nlayers = 0"), shape);
        assert!(message.contains("model.layers = 0"), "{message}");
    }
    for (text, part) in [
        ("name = 'gcn'\nresidual = true", "needs model.stack = \"tuned\""),
        ("name = 'sage'\ninput_linear = true", "needs model.stack = \"tuned\""),
        ("name = 'gin'\nhidden = 0", "model.hidden = 0"),
        ("name = 'gat'\noutput_heads = 0", "model.output_heads = 0"),
        ("name = 'gatv2'\noutput_heads = 1\nstack = 'tuned'", "needs model.stack = \"plain\""),
        ("name = 'sgformer'\ngraph_weight = 1.5", "model.graph_weight = 1.5"),
        ("name = 'polynormer'\nbeta = -0.5", "model.beta = -0.5"),
        ("name = 'appnp'\nalpha = 1.5", "model.alpha = 1.5"),
        ("name = 'appnp'\nsteps = 0", "model.steps = 0"),
        ("name = 'sign'\nhops = 0", "model.hops = 0"),
        ("name = 'sign'\nlayers = 1", "model.layers = 1"),
        ("name = 'exphormer'\nnorm = 'batch'", "model.virtual_nodes = 0"),
    ] {
        let message = failure(text, shape);
        assert!(message.contains(part), "{message}");
    }
    let message = failure("name = 'gcn'", Shape { positional: 3, ..shape });
    assert!(message.contains("no positional encodings"), "{message}");
    for text in ["name = 'gcn'\nheads = 2", "name = 'sage'\naggregation = 'median'", "name = 'gcnn'", "hidden = 3"] {
        assert!(toml::from_str::<ModelConfig>(text).is_err(), "{text}");
    }
}
