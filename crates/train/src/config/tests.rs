use super::*;

fn parse(text: &str) -> Result<Config> {
    Draft::parse(text, Path::new("run.toml"))?.finish()
}

fn with(assignments: &[&str]) -> Result<Config> {
    let mut draft = Draft::default();
    assignments.iter().try_for_each(|a| draft.assign(a))?;
    draft.finish()
}

#[test]
fn models_published_with_self_loops_get_them_unless_something_else_is_said() {
    let loops = |settings: &[&str]| {
        let mut draft = Draft::default();
        settings.iter().for_each(|s| draft.assign(s).unwrap());
        draft.finish().unwrap().data.self_loops
    };
    for (model, expected) in [
        ("gcn", Loops::Add),
        ("gat", Loops::Add),
        ("gatv2", Loops::Add),
        ("gcnii", Loops::Add),
        ("appnp", Loops::Add),
        ("sgformer", Loops::Add),
        ("gps", Loops::Add),
        ("polynormer", Loops::Add),
        ("gt", Loops::Keep),
        ("sage", Loops::Keep),
        ("gin", Loops::Keep),
        ("rgcn", Loops::Keep),
        ("exphormer", Loops::Keep),
        ("sign", Loops::Keep),
        ("mlp", Loops::Keep),
    ] {
        let name = format!("model.name={model}");
        assert_eq!(loops(&[&name]), expected, "{model}");
        assert_eq!(loops(&[&name, "data.self_loops=auto"]), expected, "{model}");
        assert_eq!(loops(&[&name, "data.self_loops=keep"]), Loops::Keep, "{model}");
        assert_eq!(loops(&[&name, "data.self_loops=remove"]), Loops::Remove, "{model}");
    }
    // PyTorch Geometric's Polynormer adds them before a GCN, not before a GAT.
    assert_eq!(loops(&["model.name=polynormer", "model.local=gat"]), Loops::Keep);
    assert_eq!(loops(&["model.name=gps", "model.local=gin"]), Loops::Keep);
}

#[test]
fn a_file_and_a_command_line_say_the_same() {
    let text =
        "[data]\npath = \"cora\"\nself_loops = \"add\"\nsplit = \"5\"\n[train]\nepochs = 7\nlr = 1\nclip = 0.5\n";
    let line =
        ["data.path=cora", "data.self_loops=add", "data.split=5", "train.epochs=7", "train.lr=1", "train.clip=5e-1"];
    let (file, line) = (parse(text).unwrap(), with(&line).unwrap());
    assert_eq!(file, line);
    assert_eq!((line.train.epochs, line.train.lr, line.train.clip), (7, 1.0, 0.5));
    assert_eq!(line.data.split.as_deref(), Some("5"));
    assert_eq!(line.data.self_loops, Loops::Add);
}

#[test]
fn the_later_setting_wins() {
    let mut draft = Draft::parse("[train]\nepochs = 7\nlr = 0.5\n", Path::new("a")).unwrap();
    draft.assign("train.epochs=9").unwrap();
    draft.assign("train.warmup=2").unwrap();
    draft.assign("data.split=x").unwrap();
    draft.unset("data", "split");
    draft.unset("run", "seed");
    assert_eq!(draft.keys(), ["train.epochs", "train.lr", "train.warmup"]);
    let config = draft.finish().unwrap();
    assert_eq!((config.train.epochs, config.train.lr, config.train.warmup), (9, 0.5, 2));
}

#[test]
fn what_is_written_is_read_back() {
    let config = with(&["train.metric=roc-auc", "compute.dtype=bf16", "data.graph=grid:2:2", "train.lr=0.1"]).unwrap();
    let text = config.to_toml().unwrap();
    assert_eq!(parse(&text).unwrap(), config);
    assert!(text.contains("plateau_patience"), "defaults are written: {text}");
}

#[test]
fn differences_are_named() {
    let (a, b) = (with(&["train.lr=0.1"]).unwrap(), with(&["run.seed=3", "data.split=x"]).unwrap());
    assert_eq!(a.differences(&b).unwrap(), ["data.split", "train.lr", "run.seed"]);
    assert!(a.differences(&a).unwrap().is_empty());
}

#[test]
fn unknown_keys_are_errors_that_offer_the_nearest() {
    for (text, parts) in [
        ("train.epoch=5", ["train.epoch:", "did you mean train.epochs"]),
        ("train.weight-decay=5", ["train.weight-decay", "train.weight_decay"]),
        ("encoding.laplace=5", ["no such key", "encoding.laplacian"]),
        ("compute.dytpe=f32", ["no such key", "compute.dtype"]),
        ("model.hiden=5", ["model.hiden: there is no such key of gt", "model.hidden"]),
        ("model.name=gtt", ["no model \"gtt\"", "did you mean gt?"]),
        ("model.name=resnet50", ["no model", "mlp"]),
        ("run.xyzzyxyzzy=5", ["no such key", "seed, seeds, checkpoint_every, keep"]),
        ("tarin.epochs=5", ["no section [tarin]", "[train]"]),
        ("epochs=5", ["no section", "section.key=value"]),
        ("train.epochs", ["no =", "section.key=value"]),
    ] {
        let message = with(&[text]).unwrap_err().to_string();
        assert!(parts.iter().all(|p| message.contains(p)), "{text}: {message}");
    }
    for (text, parts) in [
        ("[train]\nepoch = 5\n", ["train.epoch:", "train.epochs"]),
        (
            "[optim]\nlr = 5\n",
            [
                "no section [optim]",
                "data, encoding, model, link, train, compute, parallel, wire, pipeline, isolated, run",
            ],
        ),
        ("train = 5\n", ["a section, not a key", "[train]"]),
        ("[train]\nlr = = 5\n", ["run.toml", "line 2"]),
        ("[train]\nlr = 5\nlr = 6\n", ["run.toml", "line 3"]),
    ] {
        let message = parse(text).unwrap_err().to_string();
        assert!(parts.iter().all(|p| message.contains(p)), "{text}: {message}");
    }
}

#[test]
fn values_that_cannot_be_are_errors_that_name_their_key() {
    for text in [
        "train.epochs=many",
        "train.epochs=-1",
        "train.epochs=0",
        "train.epochs=1.5",
        "train.lr=0",
        "train.lr=nan",
        "train.lr=inf",
        "train.lr=-1",
        "train.weight_decay=-0.1",
        "train.clip=-1",
        "train.dropout=1",
        "train.dropout=-0.1",
        "train.label_smoothing=2",
        "train.momentum=0.9",
        "train.optimizer=lion",
        "train.schedule=step",
        "train.metric=f2",
        "train.warmup=201",
        "train.plateau_factor=0",
        "train.plateau_factor=2",
        "train.evaluate_every=0",
        "model.hidden=wide",
        "model.norm=group",
        "encoding.laplacian=-1",
        "encoding.degree=3",
        "data.symmetrise=maybe",
        "data.self_loops=some",
        "data.normalise=column",
        "compute.dtype=f16",
        "compute.remat=all",
        "run.seeds=0",
        "run.seed=-1",
        "run.seed=9223372036854775807",
        "run.checkpoint_every=0",
        "run.keep=0",
    ] {
        let message = with(&[text]).unwrap_err().to_string();
        assert!(
            message.starts_with(text.split_once('=').unwrap().0) && message.contains("remedy"),
            "{text}: {message}"
        );
    }
    let message = with(&["data.path=a", "data.graph=grid:2:2"]).unwrap_err().to_string();
    assert!(message.contains("data.graph"), "{message}");
    assert!(with(&["train.optimizer=sgd", "train.momentum=0.9"]).is_ok());
}

#[test]
fn what_is_wrong_in_a_file_is_said_of_its_line() {
    for (text, parts) in [
        ("# a\n[train]\nepoch = 3\n", ["train.epoch: line 3: there is no such key", "did you mean train.epochs"]),
        ("[train]\n\nepochs = \"3\"\n", ["train.epochs: line 3: \"3\" cannot be", "set a whole number"]),
        ("[train]\nepochs = 3\nlr = -1\n", ["train.lr: line 3: -1 is not positive", "above 0"]),
        ("train = 3\n", ["train: line 1: this is a section", "[train]"]),
        ("[train]\n[tarin]\n", ["tarin: line 2: there is no section", "[train]"]),
        ("[model]\nname = \"gcn\"\nheads = 2\n", ["model.heads: line 3: there is no such key of gcn", "layers"]),
        ("[model]\nname = 3\n", ["model.name: line 2: there is no model \"3\"", "models are"]),
    ] {
        let error = parse(text).unwrap_err();
        assert!(matches!(&error, Error::Graph(_)), "a file is at fault");
        let message = error.to_string();
        assert!(message.starts_with("run.toml: ") && parts.iter().all(|p| message.contains(p)), "{text}: {message}");
    }
    // What was given elsewhere later is not the file's.
    let mut draft = Draft::parse("[train]\nlr = 1\n", Path::new("run.toml")).unwrap();
    draft.assign("train.lr=-1").unwrap();
    assert!(draft.finish().unwrap_err().to_string().starts_with("train.lr: -1"));
}

#[test]
fn the_kind_of_a_value_is_said() {
    for (text, kind) in [
        ("train.epochs=many", "set a whole number, 0 or more"),
        ("train.lr=fast", "set a number"),
        ("data.symmetrise=maybe", "set true or false"),
        ("train.optimizer=lion", "set one of adam, adamw, sgd"),
        ("train.optimizer=[3]", "set one of adam, adamw, sgd"),
        ("data.normalise=column", "set none or row"),
        ("wire.codec=int3", "choose one that there is"),
        ("wire.schedule=falling", "set wire.codec=columns:R"),
        ("isolated.memory=much", "set a size, such as 512MiB"),
        ("isolated.memory=-1", "set a size, such as 512MiB"),
        ("parallel.strategy=halos", "choose one that there is"),
    ] {
        let message = with(&[text]).unwrap_err().to_string();
        assert!(message.contains(&format!("remedy: {kind}")), "{text}: {message}");
    }
}

#[test]
fn sizes_have_units() {
    for (text, bytes) in
        [("isolated.memory=8GiB", 8 << 30), ("isolated.memory=\"1 MiB\"", 1 << 20), ("isolated.memory=77", 77)]
    {
        let config = with(&[text]).unwrap();
        assert_eq!(config.isolated.memory, Some(bytes), "{text}");
        let again = Draft::parse(&config.to_toml().unwrap(), Path::new("run.toml")).unwrap().finish().unwrap();
        assert_eq!(again.isolated, config.isolated);
    }
}

#[test]
fn a_warm_up_that_nobody_asked_for_is_no_longer_than_the_run() {
    let draft = |settings: &[&str]| {
        let mut draft = Draft::default();
        settings.iter().for_each(|s| draft.assign(s).unwrap());
        draft
    };
    let usual = draft(&["train.epochs=80", "train.warmup=5"]);
    for (later, warmup) in [(&["train.epochs=3"][..], 3), (&["train.epochs=9"], 5), (&["train.warmup=4"], 4), (&[], 5)]
    {
        let config = usual.clone().and(&draft(later)).unwrap().finish().unwrap();
        assert_eq!(config.train.warmup, warmup, "{later:?}");
    }
    let both = usual.and(&draft(&["train.epochs=3", "train.warmup=4"])).unwrap();
    assert!(both.finish().unwrap_err().to_string().contains("train.warmup"));
}

#[test]
fn keys_belong_to_the_model_that_is_named_last() {
    let mut draft = Draft::parse("[model]\nname = \"gt\"\nheads = 4\n", Path::new("a")).unwrap();
    assert!(draft.clone().finish().is_ok());
    draft.assign("model.name=mlp").unwrap();
    let message = draft.finish().unwrap_err().to_string();
    assert!(message.contains("model.heads") && message.contains("of mlp"), "{message}");
}

#[test]
fn a_config_that_is_not_there_is_named() {
    let message = Draft::read(Path::new("/nowhere/run.toml")).unwrap_err().to_string();
    assert!(message.contains("/nowhere/run.toml"), "{message}");
}
