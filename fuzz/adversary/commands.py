"""Bad command lines and settings, and sizes that no machine has. Usage: exit 2; what does not fit: 4; never a panic
or a long wait."""

import functools

from .room import Case, Room

HUGE = 10**12
LONG = "x" * 100_000
TRAIN = ("train", "--data", "plain", "-o", "out", "train.epochs=2", "model.hidden=8")

# Settings of a run that cannot be. All are said by their key.
SETTINGS = """
model.hidden=0 model.hidden=-1 model.hidden=1.5 model.hidden=abc model.hidden= model.hidden=nan model.hidden=true
model.hidden=99999999999999999999 model.layers=-1 model.layers=x model.name=nope model.name= model.norm=nope
model.activation=nope model.stack=nope model.residual=3 model.heads=4
train.epochs=0 train.epochs=-1 train.epochs=1.5 train.epochs=many train.lr=0 train.lr=-1 train.lr=nan train.lr=inf
train.lr=abc
train.lr=1e999 train.min_lr=-1 train.min_lr=nan train.weight_decay=-1 train.weight_decay=nan train.dropout=1
train.dropout=1.5
train.dropout=-0.1 train.dropout=nan train.input_dropout=2 train.attention_dropout=-1 train.label_smoothing=1
train.momentum=0.9
train.optimizer=nope train.schedule=nope train.warmup=3 train.warmup=-1 train.plateau_factor=0 train.plateau_factor=1
train.plateau_patience=-1 train.patience=-1 train.clip=-1 train.clip=inf train.metric=nope train.evaluate_every=0
data.symmetrise=maybe data.self_loops=nope data.normalise=nope data.graph_seed=-1 data.graph=sbm:200:4:6 data.split=
encoding.laplacian=-1 encoding.random_walk=-1 encoding.degree=3 compute.dtype=f8 compute.remat=nope
compute.precision=nope
compute.record=3 parallel.ranks=0 parallel.ranks=-1 parallel.strategy=nope parallel.strategy=grid:0x0
parallel.strategy=pipeline:0x2 parallel.comm=nope parallel.partition=nope parallel.parts=0 parallel.deadline=0
parallel.calibration_rounds=0 parallel.measure=-1 pipeline.chunks=0 pipeline.refresh_every=0 pipeline.guard=nope
isolated.shrinkage=2
isolated.shrinkage=nan isolated.halo=-1 isolated.halo=nan isolated.memory=0 isolated.memory=12XB
isolated.correction=nope
isolated.rotate_every=-1 run.seed=-1 run.seed=18446744073709551616 run.seeds=0 run.checkpoint_every=0 run.keep=0
run.keep=-1
nope.key=3 model.nope=3 train.learning_rate=0.1 run.output=x
""".split()

# Values that are numbers, but too large for any machine: refused before anything is allocated.
ABSURD = [
    *(f"{key}={HUGE}" for key in ("model.hidden", "model.layers", "parallel.ranks", "parallel.parts", "pipeline.chunks",
                                  "encoding.laplacian", "encoding.random_walk")),
    "encoding.laplacian=1000000", "encoding.laplacian=200", "model.hidden=9223372036854775807",
    "model.layers=100000000",
    "model.hidden=1000000", "parallel.ranks=100000", "parallel.strategy=grid:1000000x1000000 parallel.ranks=2",
    "parallel.strategy=pipeline:1000000x1000000 parallel.ranks=2", "model.name=gt model.heads=1000000000000",
    "model.name=gat model.heads=4294967296", "model.name=gt model.hidden=64 model.heads=7",
    "model.name=gt model.heads=0",
    "isolated.memory=1 parallel.strategy=isolated", "isolated.memory=99999999999TiB", "train.warmup=1000000000000",
    "run.seed=9223372036854775807", "model.name=exphormer model.expander_degree=1000000000000",
    "model.name=exphormer model.virtual_nodes=1000000000000",
]  # fmt: skip

# Words where settings are expected.
WORDS = {
    "no-equals": "hello", "equals": "=", "no-key": "model.=3", "no-section": ".hidden=3", "deep": "a.b.c=3",
    "bare": "hidden=3",
    "unicode": "модель.ширина=3", "emoji": "🕸.🕷=1", "long-key": f"model.{LONG}=3", "long-value": f"model.name={LONG}",
    "newline": "model.hidden=8\nmodel.layers=2", "quote": 'model.name="', "brackets": "model.hidden=[[[[[[",
    "empty": "",
    "escape": "model.name=\x1b[31mred", "table": "model={}", "dash": "--", "traversal": "../../etc/passwd",
}  # fmt: skip

SPECS = """
rmat rmat: rmat:: rmat:0:4 rmat:-1:4 rmat:40:16 rmat:64:16 rmat:4:0 rmat:4:-1 rmat:4:x rmat:4:4:zz=3 rmat:4:4:f=-1
rmat:4:4:f=1000000000000 rmat:4:4:c=1000000000000 rmat:31:1000000 rmat:32:4294967295 rmat:10:1000000000000 rmat:4:nan
sbm sbm:0:1:1 sbm:10:20:3 sbm:200:0:6 sbm:200:4:-6 sbm:200:4:nan sbm:200:4:inf sbm:200:4:1000000000000 sbm:200:4:6:h=2
sbm:200:4:6:h=-1 sbm:200:4:6:h=nan sbm:200:4:6:f=1000000000000 sbm:200:4:6:snr=nan sbm:200:4:6:snr=-1 sbm:200:4:6:zz=1
sbm:1000000000000:4:6 sbm:4000000000:4:100 grid grid:0:5 grid:5:0 grid:-1:5 grid:1000000:1000000
grid:65536:65536 grid:4294967295:1 grid:1:2:3 ba ba:0:0 ba:10:20 ba:10:0 ba:4000000000:1000 ba:1000000000000:2 nope:3
: ::: +loops
rmat:4:4+loops+loops rmat:4:4+nope rmat:4:4+ 🕸:4
""".split()

EDGES = ("import", "edge-list", "edges.txt", "-o", "out")
# Whole command lines: what they are given, the codes that are right, and what the message must name.
LINES: dict[str, tuple[list, set, list]] = {
    "nothing": ([], {2}, []),
    "unknown-verb": (["frobnicate"], {2}, ["frobnicate"]),
    "unknown-flag": (["info", "--frobnicate"], {2}, ["--frobnicate"]),
    "info-nothing": (["info"], {2}, ["--data"]),
    "info-both": (["info", "--data", "plain", "--graph", "grid:3:3"], {2}, ["--graph"]),
    "info-missing": (["info", "--data", "nowhere"], {3}, ["nowhere"]),
    "info-empty": (["info", "--data", ""], {2, 3}, []),
    "info-long": (["info", "--data", LONG], {2, 3}, []),
    "threads-0": (["--threads", 0, "info", "--data", "plain"], {0, 2}, []),
    "threads-negative": (["--threads", -1, "info", "--data", "plain"], {2}, []),
    "threads-10000": (["--threads", 10000, "info", "--data", "plain"], {0, 2}, []),
    "threads-10000-train": ([*TRAIN, "--threads", 10000], {0, 2}, []),
    "threads-huge": (["--threads", HUGE, "info", "--data", "plain"], {0, 2}, []),
    "threads-word": (["--threads", "all", "info", "--data", "plain"], {2}, ["--threads"]),
    "generate-no-output": (["generate", "grid:3:3"], {2}, ["--output"]),
    "generate-seed": (["generate", "grid:3:3", "-o", "out", "--seed", -1], {2}, []),
    "generate-seed-huge": (["generate", "grid:3:3", "-o", "out", "--seed", 2**64], {2}, ["--seed"]),
    "generate-empty-output": (["generate", "grid:3:3", "-o", ""], {1, 2, 3}, []),
    "generate-long-output": (["generate", "grid:3:3", "-o", LONG], {1, 2}, []),
    "import-format": (["import", "nope", "edges.txt", "-o", "out"], {2}, ["nope"]),
    "import-missing": (["import", "edge-list", "nowhere.txt", "-o", "out"], {3}, ["nowhere.txt"]),
    "import-folder": (["import", "edge-list", "plain", "-o", "out"], {3}, ["plain"]),
    "import-ogb-file": (["import", "ogb", "edges.txt", "-o", "out"], {3}, ["edges.txt"]),
    "import-num-nodes-0": ([*EDGES, "--num-nodes", 0], {2}, ["--num-nodes"]),
    "import-num-nodes-small": ([*EDGES, "--num-nodes", 2], {2, 3}, []),
    "import-num-nodes-huge": ([*EDGES, "--num-nodes", HUGE], {2, 3, 4}, []),
    "import-num-nodes-max": ([*EDGES, "--num-nodes", 2**64 - 1], {2, 3, 4}, []),
    "import-num-nodes-4e9": ([*EDGES, "--num-nodes", 2**40], {2, 3, 4}, []),
    "import-memory-0": ([*EDGES, "--memory", 0], {2}, []),
    "import-memory-word": ([*EDGES, "--memory", "lots"], {2}, ["lots"]),
    "import-memory-huge": ([*EDGES, "--memory", "9999999TiB"], {0, 2}, []),
    "import-ids-of-metis": (["import", "metis", "edges.txt", "-o", "out", "--ids", "keep"], {2}, ["--ids"]),
    "import-ids-num-nodes": ([*EDGES, "--ids", "relabel", "--num-nodes", 9], {0, 2, 3}, []),
    "import-self-loops": ([*EDGES, "--self-loops", "nope"], {2}, ["nope"]),
    "partition-0": (["partition", "--data", "plain", "-p", 0], {2}, []),
    "partition-negative": (["partition", "--data", "plain", "-p", -1], {2}, []),
    "partition-huge": (["partition", "--data", "plain", "-p", HUGE], {2}, []),
    "partition-more-than-nodes": (["partition", "--data", "plain", "-p", 201, "-o", "out"], {0, 2}, []),
    "partition-method": (["partition", "--data", "plain", "-p", 2, "--method", "nope"], {2}, ["nope"]),
    "partition-order": (["partition", "--data", "plain", "-p", 2, "--order", "nope"], {2}, ["nope"]),
    "partition-balance": (["partition", "--data", "plain", "-p", 2, "--balance", "nope"], {2}, ["nope"]),
    "partition-memory": (["partition", "--data", "plain", "-p", 2, "--chunks", "--memory", "1B"], {2, 4}, []),
    "plan-profile": (["plan", "--data", "plain", "--profile", "nope"], {2, 3}, ["nope"]),
    "plan-profile-folder": (["plan", "--data", "plain", "--profile", "plain"], {2, 3}, ["plain"]),
    "plan-profile-text": (["plan", "--data", "plain", "--profile", "edges.txt"], {3}, ["edges.txt"]),
    "plan-features": (["plan", "--data", "plain", "--profile", "h200x8", "--features", HUGE], {2, 4}, []),
    "plan-features-0": (["plan", "--data", "plain", "--profile", "h200x8", "--features", 0], {2, 3}, []),
    "plan-classes": (["plan", "--graph", "grid:9:9", "--profile", "h200x8", "--features", 8, "--classes", HUGE], {2, 4},
                     []),
    "plan-ranks": (["plan", "--data", "plain", "--profile", "h200x8", "--ranks", HUGE], {2}, ["ranks"]),
    "plan-ranks-negative": (["plan", "--data", "plain", "--profile", "h200x8", "--ranks", -4], {2}, []),
    "plan-scaling": (["plan", "--data", "plain", "--profile", "h200x8", "--scaling", "s.svg"], {2}, ["--s"]),
    "plan-output-alone": (["plan", "--data", "plain", "-o", "out"], {2}, []),
    **{f"plan-simulate-{k}": (["plan", "--profile", "h200x8", "--simulate", text], {2, 4}, [])
       for k, text in enumerate(["", "nodes", "nodes=", "nodes=-1,edges=5", "nodes=nan,edges=5,features=3,classes=2",
                                 "edges=5",
                                 "nodes=1e300,edges=1e300,features=3,classes=2",
                                 "nodes=10,edges=5,features=1e18,classes=2,alpha=0.1",
                                 "nodes=10,edges=5,features=3,classes=2,alpha=-1", "nodes=10,edges=5,zz=3",
                                 "nodes=0,edges=0",
                                 "nodes=10,nodes=10,edges=3",
                                 "nodes=1e6,edges=1e7,features=9,classes=1e18,alpha=0.1"])},
    "train-both": ([*TRAIN, "--graph", "grid:3:3"], {2}, ["--graph"]),
    "train-missing": (["train", "--data", "nowhere", "-o", "out"], {3}, ["nowhere"]),
    "train-model": ([*TRAIN, "--model", "nope"], {2}, ["nope"]),
    "train-split": ([*TRAIN, "--split", "nope"], {2, 3}, ["nope"]),
    "train-split-family": ([*TRAIN, "--split", "nope-*"], {2, 3}, ["nope"]),
    **{f"train-split-{k}": ([*TRAIN, "--split", text], {2, 3}, ["random"])
       for k, text in enumerate(["random", "random:", "random:60/20", "random:60/50/20", "random:0/0/100",
                                 "random:-10/60/50", "random:a/b/c",
                                 "random:nan/20/20", "random:0-per-class", "random:-5-per-class",
                                 f"random:{HUGE}-per-class", "random:x-per-class"])},
    "train-seeds-0": ([*TRAIN, "--seeds", 0], {2}, ["seeds"]),
    "train-seeds-huge": ([*TRAIN, "--seeds", 2**40], {2}, ["seeds"]),
    "train-seed-word": ([*TRAIN, "--seed", "x"], {2}, ["--seed"]),
    "train-ranks-0": ([*TRAIN, "--ranks", 0], {2}, ["ranks"]),
    "train-ranks-huge": ([*TRAIN, "--ranks", HUGE], {2}, ["ranks"]),
    "train-ranks-201": ([*TRAIN, "--ranks", 201, "--strategy", "halo"], {0, 2, 3, 4}, []),
    "train-strategy": ([*TRAIN, "--ranks", 2, "--strategy", "nope"], {2}, ["nope"]),
    "train-heads-of-gcn": ([*TRAIN, "--model", "gcn", "--ranks", 4, "--strategy", "grid:3x2"], {2}, []),
    "train-local-2": ([*TRAIN, "--ranks", 2, "--strategy", "local"], {2}, ["local"]),
    **{f"train-flag-{flag[2:]}={value}": ([*TRAIN, f"{flag}={value}"], {2, 4}, [])
       for flag, values in {"--epochs": [0, -1, "x", 2**40], "--lr": [0, -1, "nan", "inf", "x"],
                            "--hidden": [0, -1, 2**32 - 1, HUGE],
                            "--layers": [-1, 2**32 - 1, "x"],
                            "--dropout": [1, -0.5, "nan"]}.items() for value in values},
    "train-comm": ([*TRAIN, "--comm", "pigeons"], {2}, ["pigeons"]),
    "train-device": ([*TRAIN, "--device", "tpu"], {2}, ["tpu"]),
    "train-device-99": ([*TRAIN, "--device", "cuda:99"], {1, 2, 3}, []),
    "train-memory-alone": ([*TRAIN, "--memory", "1KiB", "--strategy", "isolated"], {2, 4}, []),
    "train-guard": ([*TRAIN, "--guard", "stop"], {2}, ["guard"]),
    "train-emulate": ([*TRAIN, "--emulate", "nope"], {2, 3}, ["nope"]),
    "train-resume-alone": (["train", "--data", "plain", "--resume"], {2}, ["--output"]),
    "train-resume-nowhere": ([*TRAIN, "--resume=nowhere"], {2, 3}, ["nowhere"]),
    "train-config-missing": ([*TRAIN, "nowhere.toml"], {2, 3}, ["nowhere.toml"]),
    "train-config-folder": ([*TRAIN, "plain"], {2, 3}, ["plain"]),
    "train-config-text": ([*TRAIN, "edges.txt"], {2, 3}, ["edges.txt"]),
    "train-config-key": ([*TRAIN, "key.toml"], {2, 3}, ["hiden"]),
    "train-config-type": ([*TRAIN, "type.toml"], {2, 3}, ["epochs"]),
    "train-config-bytes": ([*TRAIN, "bytes.toml"], {2, 3}, ["bytes.toml"]),
    "train-config-deep": ([*TRAIN, "deep.toml"], {2, 3}, ["deep.toml"]),
    "train-config-zero": ([*TRAIN, "/dev/zero"], {2, 3}, ["/dev/zero"]),
    "eval-nothing": (["eval"], {2}, ["MODEL"]),
    "eval-missing": (["eval", "nowhere"], {3}, ["nowhere"]),
    "eval-folder": (["eval", "plain"], {3}, ["plain"]),
    "eval-text": (["eval", "edges.txt", "--config", "good.toml"], {3}, ["edges.txt"]),
    "eval-split": (["eval", "run", "--split", "nope"], {2, 3}, ["nope"]),
    "eval-other-width": (["eval", "run", "--graph", "sbm:200:4:6:f=9"], {2, 3}, []),
    "eval-other-classes": (["eval", "run", "--graph", "sbm:200:5:6:f=8"], {2, 3}, []),
    "eval-config": (["eval", "run/model.safetensors", "--config", "nowhere.toml"], {2, 3}, ["nowhere.toml"]),
    "predict-missing": (["predict", "nowhere", "-o", "p.npy"], {3}, ["nowhere"]),
    "predict-other-width": (["predict", "run", "--graph", "sbm:200:4:6:f=9", "-o", "p.npy"], {2, 3}, []),
    "predict-what": (["predict", "run", "-o", "p.npy", "--what", "nope"], {2}, ["nope"]),
    "predict-format": (["predict", "run", "-o", "p.npy", "--format", "nope"], {2}, ["nope"]),
    "predict-both": (["predict", "run", "--graph", "grid:3:3", "--data", "plain"], {2}, ["--graph"]),
    "bench-nothing": (["bench"], {2}, []),
    "bench-gemm-0": (["bench", "gemm", "--rows", 0], {0, 2}, []),
    "bench-gemm-huge": (["bench", "gemm", "--rows", HUGE], {2, 4}, []),
    "bench-hidden": (["bench", "spmm", "--graph", "grid:3:3", "--hidden", HUGE], {2, 4}, []),
    "bench-train-hidden": (["bench", "train", "--graph", "sbm:200:4:6:f=8", "--hidden", HUGE], {2, 4}, []),
    "bench-heads": (["bench", "attention", "--graph", "grid:3:3", "--heads", HUGE], {2, 4}, []),
    "bench-runs-huge": (["bench", "spmm", "--graph", "grid:3:3", "--runs", 2**63], {2, 4}, []),
    "bench-runs": (["bench", "spmm", "--graph", "grid:3:3", "--runs", -1], {2}, []),
}  # fmt: skip


def cases(_seed: int) -> list[Case]:
    found = [Case(f"commands/setting/{s}", functools.partial(setting, s)) for s in SETTINGS]
    found += [Case(f"commands/absurd/{s}", functools.partial(absurd, s)) for s in ABSURD]
    found += [Case(f"commands/word/{name}", functools.partial(word, text)) for name, text in WORDS.items()]
    found += [Case(f"commands/spec/{s}", functools.partial(spec, s)) for s in SPECS]
    found += [Case("commands/spec/empty", functools.partial(spec, "")),
              Case("commands/spec/long", functools.partial(spec, LONG))]
    return found + [Case(f"commands/line/{name}", functools.partial(line, name)) for name in LINES]


def setting(text, room: Room):
    room.copy("plain")
    key = text.split("=")[0]
    room.run(*TRAIN, "--model", "gcn", text, want={2, 3}, any_name=[key, key.split(".")[-1]])
    room.absent("out")


def absurd(texts, room: Room):
    room.copy("plain")
    keys = [text.split("=")[0].split(".")[-1] for text in texts.split()]
    words = texts.split() if "model.name" in texts else ["model.name=gcn", *texts.split()]
    room.run(*TRAIN, *words, want={2, 4}, any_name=[*keys, "memory"])
    room.absent("out")


def word(text, room: Room):
    room.copy("plain")
    # Alone, "--" says nothing.
    room.run(*TRAIN, text, want={0} if text == "--" else {2, 3})
    if text != "--":
        room.absent("out")


def spec(text, room: Room):
    room.run("generate", text, "-o", "out", want={2, 4}, any_name=["graph", "generator", "nodes", "edges", "disk"])
    room.absent("out")
    if room.rng.random() < 0.3:
        room.run("info", "--graph", text, want={2, 4})


def line(name, room: Room):
    args, want, names = LINES[name]
    for fixture in ("plain", "run"):
        room.copy(fixture)
    (room / "edges.txt").write_text("0 1\n1 2\n2 0\n")
    (room / "key.toml").write_text("[model]\nhiden = 3\n")
    (room / "type.toml").write_text("[train]\nepochs = 'many'\n")
    (room / "good.toml").write_text("[model]\nname = 'gcn'\n")
    (room / "bytes.toml").write_bytes(bytes(range(256)))
    (room / "deep.toml").write_text("a = " + "[" * 100_000)
    ended = room.run(*args, want=want, names=names)
    if ended.code != 0:
        room.absent("out", "p.npy", "s.svg", "runs")
