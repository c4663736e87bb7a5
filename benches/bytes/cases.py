"""The fixed list of runs whose results must stay the same.

A case is a name and the arguments of one or more commands, run one after another in a folder with the datasets of
`data.py`. `{run}` is the run directory. Every model, every strategy, every type, what is drawn, what is resumed.
"""

MODELS = ["gt", "exphormer", "gps", "sgformer", "polynormer", "gcn", "sage", "gat", "gatv2", "gin", "gcnii", "mlp"]
# What a strategy needs of a model decides where it is tried: heads and grid share attention heads, pipelines layers.
STRATEGIES = ["gather", "halo", "halo:plain", "heads", "ring", "ring:2", "pipeline", "isolated"]
GRIDS = {2: ["grid:2x1", "grid:1x2"], 3: ["grid:3x1"], 4: ["grid:2x2", "grid:2x2:gather", "pipeline:2x2"]}
RANKS = [2, 3, 4]

BLOCKS = "--graph sbm:300:4:8"
SMALL = "--epochs 4 --hidden 24 --layers 3 --dropout 0.2 train.lr=0.01 run.checkpoint_every=2"
ATTENTION = "model.heads=12 train.attention_dropout=0.1"
PIPELINED = "pipeline.refresh_every=2 pipeline.guard_every=2"
# Models whose heads the runs on several ranks set, so that 2, 3 and 4 ranks divide them.
ATTENTIVE = ["gt", "exphormer", "gat", "gatv2"]


def spread(strategy, ranks, model="gt", more=""):
    own = PIPELINED if strategy.startswith("pipeline") else "isolated.rotate_every=2" if strategy == "isolated" else ""
    heads = ATTENTION if model in ATTENTIVE else ""
    run = f"train {BLOCKS} --model {model} {SMALL} {heads} {own} {more} --ranks {ranks} --strategy {strategy} -o {{run}}"
    settings = [one.split("=")[-1] for one in more.split() if "=" in one]
    return ", ".join([model, strategy, f"{ranks} ranks", *settings]), [run]


def one_rank(name, arguments):
    return name, [f"train {arguments} -o {{run}}"]


def models():
    for model in MODELS:
        yield one_rank(f"{model}, one rank", f"{BLOCKS} --model {model} {SMALL}")
    warm = "model.warm_up=2 model.local=gat"
    yield one_rank("polynormer, global layers begin", f"{BLOCKS} --model polynormer {SMALL} {warm}")
    yield one_rank("gcn, tuned", f"{BLOCKS} --model gcn {SMALL} model.stack=tuned model.norm=batch model.residual=true")
    yield one_rank("sage, max", f"{BLOCKS} --model sage {SMALL} model.aggregation=max")
    for local in ["sage", "gat", "gin"]:
        yield one_rank(f"gps, {local}", f"{BLOCKS} --model gps {SMALL} model.local={local}")


def strategies():
    for ranks in RANKS:
        for strategy in STRATEGIES + GRIDS[ranks]:
            yield spread(strategy, ranks)
    for model in MODELS[1:]:
        yield spread("halo", 2, model)
    for model in ["gcn", "gat", "gcnii", "sage"]:
        yield spread("ring", 3, model)
        yield spread("pipeline", 2, model)
        yield spread("isolated", 2, model)
    for model in ["exphormer", "gps", "sgformer", "polynormer"]:
        yield spread("gather", 3, model)
    for correction in ["first-hop", "depth-aware", "batch-scalar"]:
        yield spread("isolated", 2, more=f"parallel.parts=6 isolated.correction={correction} isolated.halo=0.5")
    for partition in ["contiguous", "random", "streaming"]:
        yield spread("halo", 3, more=f"parallel.partition={partition}")
    yield spread("isolated", 1, more="--memory 900KiB parallel.partition=contiguous")
    # Chosen by a shipped profile, so that no machine is measured.
    chosen = "parallel.profile=16-cpu-10g --ranks 4"
    yield one_rank("gt, auto", f"{BLOCKS} --model gt {SMALL} {ATTENTION} {chosen}")
    yield one_rank("gcn, auto, approximate", f"{BLOCKS} --model gcn {SMALL} {chosen} --allow-approximate")


def types():
    for dtype in ["f64", "bf16"]:
        for model in MODELS:
            yield one_rank(f"{model}, {dtype}", f"{BLOCKS} --model {model} {SMALL} compute.dtype={dtype}")
        for strategy in ["gather", "halo", "heads", "ring", "pipeline", "isolated", "grid:1x2"]:
            yield spread(strategy, 2, more=f"compute.dtype={dtype}")


def memory():
    for remat in ["attention", "layer", "both"]:
        more = f"compute.remat={remat}"
        for model in ["gt", "gat", "exphormer"]:
            yield one_rank(f"{model}, {remat} again", f"{BLOCKS} --model {model} {SMALL} {more}")
        yield spread("halo", 3, more=more)
        yield spread("ring", 2, more=more)


def data():
    for folder in ["dense", "sparse"]:
        for model in ["gt", "gcn", "mlp"]:
            yield one_rank(f"{folder} features, {model}", f"--data {folder} --model {model} {SMALL}")
        yield f"{folder} features, halo", [f"train --data {folder} --model gt {SMALL} --ranks 2 --strategy halo -o {{run}}"]
    yield one_rank("normalised features", f"--data sparse --model gcn {SMALL} data.normalise=row train.input_dropout=0.3")
    yield one_rank("macro F1", f"--data dense --model gcn {SMALL} train.metric=macro-f1 data.self_loops=remove")
    yield one_rank("a split per class", f"--data dense --model gcn {SMALL} --split random:20-per-class --seed 7")
    yield one_rank("two drawn splits", f"--data dense --model sage {SMALL} --split random:60/20/20 --seeds 2")
    several = f"--data several {SMALL} --split public-*"
    yield one_rank("several labels, two seeds", f"{several} --model gcn --seeds 2")
    yield one_rank("several labels, precision", f"{several} --model gt train.metric=average-precision")
    for strategy in ["halo", "isolated", "pipeline"]:
        own = PIPELINED if strategy == "pipeline" else ""
        yield f"several labels, {strategy}", [f"train {several} --model gt {own} --ranks 2 --strategy {strategy} -o {{run}}"]
    encoded = "encoding.laplacian=3 encoding.random_walk=4 encoding.degree=true"
    yield one_rank("encodings", f"{BLOCKS} --model gt {SMALL} {encoded}")


def training():
    sgd = "train.optimizer=sgd train.momentum=0.9 train.clip=0.5 train.schedule=cosine train.warmup=1"
    yield one_rank("sgd", f"{BLOCKS} --model gcn {SMALL} {sgd}")
    adam = "train.optimizer=adam train.weight_decay=0.01 train.schedule=plateau train.plateau_patience=1"
    yield one_rank("adam", f"{BLOCKS} --model gat {SMALL} {adam} train.label_smoothing=0.1 train.evaluate_every=2")
    yield one_rank("early stop", f"{BLOCKS} --model mlp {SMALL} train.patience=1 --epochs 20".replace("--epochs 4 ", ""))


def resumed():
    half, all_of_it = SMALL.replace("--epochs 4", "--epochs 2"), SMALL.replace("--epochs 4", "--epochs 5")
    for name, more in {
        "one rank": "",
        "halo": "--ranks 3 --strategy halo",
        "pipeline": f"--ranks 2 --strategy pipeline {PIPELINED}",
        "isolated": "--ranks 2 --strategy isolated isolated.rotate_every=2",
    }.items():
        first = f"train {BLOCKS} --model gt {half} {ATTENTION} {more} -o {{run}}"
        again = f"train {BLOCKS} --model gt {all_of_it} {ATTENTION} {more} --resume -o {{run}}"
        yield f"resumed, {name}", [first, again]


def verbs():
    run = f"train {BLOCKS} --model gt {SMALL} -o {{run}}"
    yield "eval and predict", [
        run,
        "eval {run}",
        "predict {run} -o {run}/logits.npy",
        "predict {run} --what probabilities -o {run}/probabilities.csv",
        "predict {run} --what labels --ranks 2 --strategy halo -o {run}/labels.csv",
    ]
    for model in ["gt", "gcnii"]:
        spread_out = "--ranks 4 --profile 16-cpu-10g --allow-approximate"
        yield f"plan, {model}", [f"plan {BLOCKS} --model {model} {spread_out} model.hidden=24"]
    for method in ["contiguous", "random", "metis", "streaming"]:
        divide = f"partition --data {{run}} --parts 4 --method {method}"
        yield f"partition, {method}", ["generate sbm:400:4:8 -o {run}", divide]


CASES = [
    *models(), *strategies(), *types(), *memory(), *data(), *training(), *resumed(), *verbs(),
]  # fmt: skip
