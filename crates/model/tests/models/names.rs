//! Names and shapes of parameters.

use graphweft_model::{Network, Shape, Target, TypeCounts};
use graphweft_tensor::ops::edge_values::EdgeColumns;
use graphweft_tensor::{DType, Device};

use super::{CLASSES, FEATURES, config, f64s, models};

#[test]
fn names_are_unique_and_weights_follow_from_seed_and_name() {
    for model in &models() {
        let device = Device::cpu();
        let shape = Shape {
            features: FEATURES,
            positional: 0,
            classes: CLASSES,
            edge_features: EdgeColumns::numbers(2),
            types: TypeCounts::default(),
            target: Target::Nodes,
        };
        let build = |seed| config(model).build(&device, shape, DType::F32, seed).unwrap();
        let values = |network: &Network| -> Vec<(String, Vec<f64>)> {
            network.parameters().iter().map(|p| (p.name().to_string(), f64s(&p.value()))).collect()
        };
        let (one, same, other) = (values(&build(1)), values(&build(1)), values(&build(2)));
        assert_eq!(one, same);
        assert_ne!(one, other);
        let mut names: Vec<&String> = one.iter().map(|(name, _)| name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), one.len(), "{model}");
        for p in build(1).parameters() {
            assert_eq!(p.dims().iter().product::<usize>(), p.value().rows() * p.value().cols(), "{}", p.name());
        }
    }
}

/// What `state_dict()` of PyTorch Geometric's own model has, in its order or another.
#[test]
fn names_and_shapes_are_those_of_pytorch_geometric() {
    let table = |text: &str| -> Vec<String> {
        let shape = Shape::of_nodes(20, 4);
        let network = config(text).build(&Device::cpu(), shape, DType::F32, 1).unwrap();
        let parameters = network.parameters();
        let mut lines: Vec<String> = parameters.iter().map(|p| format!("{} {:?}", p.name(), p.dims())).collect();
        lines.extend(network.buffers().iter().map(|b| format!("{} [{}]", b.name(), b.count())));
        lines.sort();
        lines
    };
    assert_eq!(
        table("name = 'gcn'\nhidden = 16\nlayers = 2\nnorm = 'batch'"),
        [
            "convs.0.bias [16]",
            "convs.0.lin.weight [16, 20]",
            "convs.1.bias [4]",
            "convs.1.lin.weight [4, 16]",
            "norms.0.module.bias [16]",
            "norms.0.module.running_mean [16]",
            "norms.0.module.running_var [16]",
            "norms.0.module.weight [16]",
        ]
    );
    assert_eq!(
        table("name = 'sage'\nhidden = 16\nlayers = 2"),
        [
            "convs.0.lin_l.bias [16]",
            "convs.0.lin_l.weight [16, 20]",
            "convs.0.lin_r.weight [16, 20]",
            "convs.1.lin_l.bias [4]",
            "convs.1.lin_l.weight [4, 16]",
            "convs.1.lin_r.weight [4, 16]",
        ]
    );
    assert_eq!(
        table("name = 'gat'\nhidden = 16\nlayers = 2\nheads = 8"),
        [
            "convs.0.att_dst [1, 8, 2]",
            "convs.0.att_src [1, 8, 2]",
            "convs.0.bias [16]",
            "convs.0.lin.weight [16, 20]",
            "convs.1.att_dst [1, 8, 4]",
            "convs.1.att_src [1, 8, 4]",
            "convs.1.bias [4]",
            "convs.1.lin.weight [32, 16]",
        ]
    );
    assert_eq!(
        table("name = 'gat'\nhidden = 16\nlayers = 1\noutput_heads = 1"),
        ["convs.0.att_dst [1, 1, 4]", "convs.0.att_src [1, 1, 4]", "convs.0.bias [4]", "convs.0.lin.weight [4, 20]"]
    );
    assert_eq!(
        table("name = 'gatv2'\nhidden = 16\nlayers = 1\nheads = 2"),
        [
            "convs.0.att [1, 2, 4]",
            "convs.0.bias [4]",
            "convs.0.lin_l.bias [8]",
            "convs.0.lin_l.weight [8, 20]",
            "convs.0.lin_r.bias [8]",
            "convs.0.lin_r.weight [8, 20]",
        ]
    );
    assert_eq!(
        table("name = 'gin'\nhidden = 16\nlayers = 1"),
        [
            "convs.0.eps [1]",
            "convs.0.nn.lins.0.bias [4]",
            "convs.0.nn.lins.0.weight [4, 20]",
            "convs.0.nn.lins.1.bias [4]",
            "convs.0.nn.lins.1.weight [4, 4]",
        ]
    );
}
